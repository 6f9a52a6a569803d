// Matrix products into planned memory, past the dispatcher.
#include <ATen/CPUFunctions.h>
#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

#include "codegen/codegen.h"
#include "launch/extern.h"
#include "launch/launch.h"
#include "launch/onednn_product.h"
#include "launch/timed_ways.h"
#include "runtime/gemm.h"

namespace braze::launch {
namespace {

struct Batches {
  int64_t count = 1, a = 0, b = 0, c = 0;  // and elements from one to the next
};

class MatmulCall : public ExternCall {
 public:
  enum class Kind : uint8_t { Mm, Bmm, Addmm, Baddbmm };

  MatmulCall(const runtime::Program& program, const loop::ExternCall& call, Kind kind, const at::Scalar& beta,
             const at::Scalar& alpha, std::vector<uint32_t> operands, const std::shared_ptr<TuningTime>& time)
      : kind_(kind), beta_(beta), alpha_(alpha), out_(program, call.outputs[0]) {
    for (uint32_t v : operands) views_.emplace_back(program, call.views[v]);
    auto one = [](const at::Scalar& s) { return s.toDouble() == 1; };
    row_bias_ = kind == Kind::Addmm && one(beta_) && views_[0].sizes.size() == 1 && views_[0].dtype == out_.dtype;
    const bool floats =
        std::all_of(views_.begin(), views_.end(), [](const ViewSpec& v) { return v.dtype == c10::ScalarType::Float; });
    const bool plain = one(alpha_) && (kind == Kind::Mm || kind == Kind::Bmm || row_bias_);
    onednn_ = floats && plain;
    own_ = (kind == Kind::Mm || (kind == Kind::Addmm && one(beta_) && one(alpha_) && views_[0].sizes.size() == 1)) &&
           floats;
    const bool row_sums = kind == Kind::Mm || (kind == Kind::Addmm && row_bias_ && one(alpha_));
    const Target& target = codegen::cpu_target();
    half_ = row_sums &&
            ((out_.dtype == c10::ScalarType::BFloat16 && target.slow_bf16_products) ||
             (out_.dtype == c10::ScalarType::Half && target.slow_f16_products)) &&
            std::all_of(views_.begin(), views_.end(), [&](const ViewSpec& v) { return v.dtype == out_.dtype; });
    const loop::BufferId out = call.outputs[0].buffer;
    const bool read =
        std::any_of(operands.begin(), operands.end(), [&](uint32_t v) { return call.views[v].buffer == out; });
    if (time && (own_ || (kind == Kind::Bmm && floats)) && !read)
      ways_ = std::make_unique<TimedWays>(time, program.plan().keeps_choices);
  }

  void run(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const override {
    if (half_ && run_half(frame)) return;
    if (ways_) return run_timed(frame, call, state);
    if (own_ && pays(frame) && run_own(frame)) return;
    if (onednn_ && is_worth_onednn(frame) && run_onednn(frame, call, state)) return;
    run_library(frame, call, state);
  }

 private:
  enum Way : size_t { kLibrary, kOwn, kOneDnn, kWays };

  // By the way that is the fastest for operands like these.
  void run_timed(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const {
    c10::SmallVector<int64_t, 16> shape;
    for (const ViewSpec& v : views_) {
      for (runtime::Slot s : v.sizes) shape.push_back(frame.value(s));
      for (runtime::Slot s : v.strides) shape.push_back(frame.value(s));
    }
    for (runtime::Slot s : out_.strides) shape.push_back(frame.value(s));
    shape.push_back(at::globalContext().userEnabledMkldnn());
    const std::span<const int64_t> key(shape.data(), shape.size());
    int way = ways_->known(key);
    if (way < 0) {
      const CallWay ways[kWays] = {
          {"library", [&] { return run_library(frame, call, state), true; }},
          {"own kernel", [&] { return run_own(frame); }},
          {"oneDNN", [&] { return run_onednn(frame, call, state); }},
      };
      way = static_cast<int>(ways_->choose(key, describe(frame), ways));
    }
    if (way == kOwn && run_own(frame)) return;
    if (way == kOneDnn && run_onednn(frame, call, state)) return;
    run_library(frame, call, state);
  }

  TimedCall describe(const runtime::Frame& frame) const {
    const ViewSpec &a = views_[views_.size() - 2], &b = views_[views_.size() - 1];
    auto at = [&](const ViewSpec& v, size_t d) { return frame.value(of_matrix(v.sizes, d)); };
    auto text = [](int64_t n) { return std::to_string(n); };
    TimedCall call;
    const int64_t batches = kind_ == Kind::Bmm ? frame.value(a.sizes[0]) : 1;
    call.what = std::string(kind_ == Kind::Mm    ? "aten::mm "
                            : kind_ == Kind::Bmm ? "aten::bmm " + text(batches) + "x"
                                                 : "aten::addmm ") +
                text(at(a, 0)) + "x" + text(at(b, 1)) + " of " + text(at(a, 1));
    // Of a weight that takes a good part of the caches no other layer's leaves much there. What is multiplied in
    // batches was computed just before.
    constexpr int64_t kPart = 16;
    const int64_t bytes = at(b, 0) * at(b, 1) * static_cast<int64_t>(sizeof(float));
    call.cold = kind_ != Kind::Bmm && bytes >= codegen::cpu_target().cache_bytes / kPart;
    return call;
  }

  void run_library(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const {
    state.views.resize(views_.size());
    state.outputs.resize(1);
    auto in = [&](size_t i) -> const at::Tensor& { return state.views[i].get(views_[i], frame, call); };
    at::Tensor out = state.outputs[0].get(out_, frame, call);
    switch (kind_) {
      case Kind::Mm: at::cpu::mm_out(out, in(0), in(1)); break;
      case Kind::Bmm: at::cpu::bmm_out(out, in(0), in(1)); break;
      case Kind::Addmm:
        if (row_bias_ && fill_rows(frame))
          at::cpu::addmm_out(out, out, in(1), in(2), 1, alpha_);
        else
          at::cpu::addmm_out(out, in(0), in(1), in(2), beta_, alpha_);
        break;
      case Kind::Baddbmm: at::cpu::baddbmm_out(out, in(0), in(1), in(2), beta_, alpha_); break;
    }
  }

  // False where there is none.
  bool run_onednn(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const {
    if (!onednn_ || !has_onednn_product() || (row_bias_ && !fill_rows(frame))) return false;
    state.views.resize(views_.size());
    state.outputs.resize(1);
    auto in = [&](size_t i) -> const at::Tensor& { return state.views[i].get(views_[i], frame, call); };
    onednn_product(in(views_.size() - 2), in(views_.size() - 1), state.outputs[0].get(out_, frame, call),
                   row_bias_ ? 1.0f : 0.0f);
    return true;
  }

  // Whether oneDNN's is faster than the library that PyTorch calls, where nothing is timed.
  bool is_worth_onednn(const runtime::Frame& frame) const {
    if (!codegen::cpu_target().slow_f32_products) return false;
    constexpr int64_t kWorth = 3 << 19, kLeast = 16;  // multiplications; of each size
    const ViewSpec &a = views_[views_.size() - 2], &b = views_[views_.size() - 1];
    const int64_t m = frame.value(of_matrix(a.sizes, 0)), k = frame.value(of_matrix(a.sizes, 1)),
                  n = frame.value(of_matrix(b.sizes, 1)), batches = kind_ == Kind::Bmm ? frame.value(a.sizes[0]) : 1;
    return std::min({m, n, k}) >= kLeast && m * n * k * batches >= kWorth;
  }

  // Whether linear layers of these sizes are ours, where nothing is timed.
  bool pays(const runtime::Frame& frame) const {
    const ViewSpec &a = views_[views_.size() - 2], &b = views_[views_.size() - 1];
    return runtime::gemm_nt_pays(frame.value(a.sizes[0]), frame.value(b.sizes[1]), frame.value(a.sizes[1]),
                                 codegen::cpu_target().slow_f32_products);
  }
  // Of a list with an entry for each dimension: of a matrix's rows (0) or columns (1), behind those of batches.
  static runtime::Slot of_matrix(const std::vector<runtime::Slot>& list, size_t d) { return list[list.size() - 2 + d]; }
  // The operands of a layer (of the first one of a batch) whose weight has a row for each column of the result, but for
  // `a`, whose data is returned; nullptr where there is nothing to do, or the layout is another.
  template <class T, class Gemm>
  const T* read_layer(const runtime::Frame& frame, Gemm& g) const {
    const ViewSpec &a = views_[views_.size() - 2], &b = views_[views_.size() - 1];
    auto at = [&](runtime::Slot s) { return frame.value(s); };
    auto size = [&](const ViewSpec& v, size_t d) { return at(of_matrix(v.sizes, d)); };
    auto stride = [&](const ViewSpec& v, size_t d) { return at(of_matrix(v.strides, d)); };
    auto data = [&](const ViewSpec& v) { return static_cast<T*>(frame.pointer(v.buffer)) + at(v.offset); };
    g.m = size(a, 0), g.k = size(a, 1), g.n = size(b, 1);
    if (g.m < 1 || g.n < 1 || g.k < 1 || stride(a, 1) != 1 || stride(b, 0) != 1 || stride(out_, 1) != 1) return nullptr;
    if (kind_ == Kind::Addmm) {
      if (at(views_[0].sizes[0]) != g.n || at(views_[0].strides[0]) != 1) return nullptr;
      g.bias = data(views_[0]);
    }
    g.lda = stride(a, 0);
    g.b = data(b), g.ldb = stride(b, 1);
    g.c = data(out_), g.ldc = stride(out_, 0);
    return data(a);
  }
  static constexpr int64_t kTask = 200'000;  // multiplications, or elements, that are worth another thread
  // Blocks of columns, of each batch, by the pool's threads.
  template <auto multiply, class Gemm>
  static void run_columns(const Gemm& g, const Batches& batches = {}) {
    struct Work {
      const Gemm& first;
      const Batches& batches;
      int64_t blocks;
    } work{g, batches, (g.n + runtime::kGemmColumns - 1) / runtime::kGemmColumns};
    parallel_for(
        0, batches.count * work.blocks, std::max<int64_t>(1, kTask / (runtime::kGemmColumns * g.m * g.k)),
        [](void* ctx, int64_t lo, int64_t hi) {
          auto& w = *static_cast<const Work*>(ctx);
          while (lo < hi) {
            const int64_t batch = lo / w.blocks, from = lo % w.blocks, to = std::min(w.blocks, from + hi - lo);
            Gemm one = w.first;
            one.a += batch * w.batches.a, one.b += batch * w.batches.b, one.c += batch * w.batches.c;
            multiply(one, from * runtime::kGemmColumns, std::min(one.n, to * runtime::kGemmColumns));
            lo += to - from;
          }
        },
        &work);
  }

  // False where the operands' layout is another.
  bool run_own(const runtime::Frame& frame) const {
    runtime::GemmNT g;
    g.a = read_layer<float>(frame, g);
    if (!g.a) return false;
    Batches batches;
    if (kind_ == Kind::Bmm) {
      auto step = [&](const ViewSpec& v) { return frame.value(v.strides[0]); };
      batches = {frame.value(views_[0].sizes[0]), step(views_[0]), step(views_[1]), step(out_)};
    }
    run_columns<runtime::gemm_nt>(g, batches);
    return true;
  }

  // Layers of half types, whose weight's rows are read as they lie; false where the layout is another.
  bool run_half(const runtime::Frame& frame) const {
    runtime::HalfGemmNT g;
    const uint16_t* a = read_layer<uint16_t>(frame, g);
    if (!a) return false;
    g.bfloat = out_.dtype == c10::ScalarType::BFloat16;
    const c10::DataPtr wide = c10::GetCPUAllocator()->allocate(static_cast<size_t>(g.m * g.k) * sizeof(float));
    struct Rows {
      const uint16_t* from;
      float* to;
      int64_t step, k;
      bool bfloat;
    } rows{a, static_cast<float*>(wide.get()), g.lda, g.k, g.bfloat};
    g.a = rows.to, g.lda = g.k;
    parallel_for(
        0, g.m, std::max<int64_t>(1, kTask / g.k),
        [](void* ctx, int64_t lo, int64_t hi) {
          auto& r = *static_cast<const Rows*>(ctx);
          for (int64_t i = lo; i < hi; ++i) runtime::widen_half(r.from + i * r.step, r.to + i * r.k, r.k, r.bfloat);
        },
        &rows);
    run_columns<runtime::gemm_nt_half>(g);
    return true;
  }

  // The bias into every row of the result, which the product is then added to: ATen's own broadcasting copy is slow.
  bool fill_rows(const runtime::Frame& frame) const {
    auto at = [&](runtime::Slot s) { return frame.value(s); };
    size_t element = c10::elementSize(out_.dtype);
    struct Rows {
      const char* bias;
      char* out;
      size_t bytes, step;
    } rows;
    int64_t m = at(out_.sizes[0]), n = at(out_.sizes[1]);
    if (at(views_[0].sizes[0]) != n || (n > 1 && (at(views_[0].strides[0]) != 1 || at(out_.strides[1]) != 1)))
      return false;
    rows.bias = static_cast<const char*>(frame.pointer(views_[0].buffer)) + at(views_[0].offset) * element;
    rows.out = static_cast<char*>(frame.pointer(out_.buffer)) + at(out_.offset) * element;
    rows.bytes = n * element, rows.step = at(out_.strides[0]) * element;
    parallel_for(
        0, m, std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(1, rows.bytes)),
        [](void* ctx, int64_t lo, int64_t hi) {
          auto& r = *static_cast<const Rows*>(ctx);
          for (int64_t i = lo; i < hi; ++i) std::memcpy(r.out + i * r.step, r.bias, r.bytes);
        },
        &rows);
    return true;
  }

  Kind kind_;
  bool own_ = false, half_ = false, row_bias_ = false, onednn_ = false;
  std::unique_ptr<TimedWays> ways_;
  at::Scalar beta_, alpha_;
  std::vector<ViewSpec> views_;
  ViewSpec out_;
};

std::optional<at::Scalar> scalar(const runtime::Program& program, const loop::ExternArg& a) {
  if (auto* d = std::get_if<double>(&a)) return at::Scalar(*d);
  if (auto* b = std::get_if<bool>(&a)) return at::Scalar(*b);
  if (auto* e = std::get_if<sym::Expr>(&a))
    if (auto value = program.plan().arena->as_const(*e)) return at::Scalar(*value);
  return std::nullopt;
}

}  // namespace

std::unique_ptr<ExternCall> make_matmul_call(const runtime::Program& program, const plan::Extern& step,
                                             const std::shared_ptr<TuningTime>& time) {
  const loop::ExternCall& call = step.call;
  if (!call.preallocated || call.outputs.size() != 1 || !call.outputs[0].buffer.valid()) return nullptr;
  MatmulCall::Kind kind;
  size_t tensors;
  if (call.name == "aten::mm")
    kind = MatmulCall::Kind::Mm, tensors = 2;
  else if (call.name == "aten::bmm")
    kind = MatmulCall::Kind::Bmm, tensors = 2;
  else if (call.name == "aten::addmm")
    kind = MatmulCall::Kind::Addmm, tensors = 3;
  else if (call.name == "aten::baddbmm")
    kind = MatmulCall::Kind::Baddbmm, tensors = 3;
  else
    return nullptr;
  if (call.args.size() < tensors) return nullptr;
  std::vector<uint32_t> operands;
  for (size_t i = 0; i < tensors; ++i) {
    auto* v = std::get_if<loop::ViewRef>(&call.args[i]);
    if (!v || !v->valid() || program.plan().buffers[call.views[v->index].buffer.index].device.type != DeviceType::CPU)
      return nullptr;
    operands.push_back(v->index);
  }
  at::Scalar beta = 1, alpha = 1;
  for (size_t i = tensors; i < call.args.size(); ++i) {
    auto value = scalar(program, call.args[i]);
    if (!value || i >= tensors + 2) return nullptr;
    (i == tensors ? beta : alpha) = *value;
  }
  return std::make_unique<MatmulCall>(program, call, kind, beta, alpha, std::move(operands), time);
}

}  // namespace braze::launch
