// Attention with functions of its scores by kernels of Triton's, made when a call first wants them.
#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <bit>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/fork_mutex.h"
#include "codegen/triton/attention.h"
#include "codegen/triton/printer.h"
#include "driver/score_program.h"
#include "launch/flex_attention.h"
#include "launch/score_functions.h"
#include "launch/warn_once.h"
#include "runtime/cuda/driver.h"
#include "trace/convert.h"

namespace braze::launch::flex {
namespace {

namespace cuda = runtime::cuda;
namespace triton = codegen::triton;
using at::Tensor;
using triton::Role;

enum Which : uint8_t { kForwardKernel, kDelta, kDeltaLse, kBackwardQuery, kBackwardKey, kKernels };

struct Loaded {
  void* function = nullptr;
  uint32_t threads = 0, shared = 0;
  int rows = 1;
  std::vector<std::array<int, 3>> roles;
};

// What kernels of calls that look alike are printed for.
struct Form {
  triton::AttentionKernel kernel;
  std::shared_ptr<sym::ExprArena> arena;
  std::array<sym::Expr, 4> sizes;
  std::vector<TensorType> operands;
};

// The kernels of such calls.
struct Family {
  bool aligned = true;
  std::array<std::optional<Loaded>, kKernels> loaded;
  std::array<bool, kKernels> refused{};
};

bool multiple(int64_t n) { return n % 16 == 0; }

bool is_aligned(const Tensor& t) {
  return multiple(reinterpret_cast<int64_t>(t.data_ptr())) && multiple(t.stride(0)) && multiple(t.stride(1)) &&
         multiple(t.stride(2));
}

// A tensor whose rows are dense, and whose offsets within a head fit 32 bits.
Tensor with_dense_rows(const Tensor& t) {
  bool fits = t.stride(2) >= 0 && t.stride(2) * t.size(2) < INT32_MAX - (1 << 24);
  return t.stride(3) == 1 && fits ? t : t.contiguous();
}

// The tensors of one call, and what stands for them in its kernels' parameters.
struct Arguments {
  std::array<Tensor, static_cast<size_t>(Role::FullIdx) + 1> tensors;
  const std::vector<Tensor>* operands = nullptr;
  int64_t list_batch = 0, list_head = 0, list_columns = 0, full_columns = 0;
  double scale = 1;

  Tensor& operator[](Role r) { return tensors[static_cast<size_t>(r)]; }
  const Tensor& operator[](Role r) const { return tensors[static_cast<size_t>(r)]; }

  uint64_t value(const std::array<int, 3>& role) const {
    auto pointer = [](const Tensor& t) { return reinterpret_cast<uint64_t>(t.data_ptr()); };
    const Tensor &q = (*this)[Role::Query], &k = (*this)[Role::Key];
    switch (static_cast<Role>(role[0])) {
      case Role::Operand: return pointer((*operands)[static_cast<size_t>(role[1])]);
      case Role::Stride: return static_cast<uint64_t>((*this)[static_cast<Role>(role[2])].stride(role[1]));
      case Role::Batch: return static_cast<uint64_t>(q.size(0));
      case Role::Heads: return static_cast<uint64_t>(q.size(1));
      case Role::Queries: return static_cast<uint64_t>(q.size(2));
      case Role::Keys: return static_cast<uint64_t>(k.size(2));
      case Role::Scale: return std::bit_cast<uint32_t>(static_cast<float>(scale));
      case Role::ListBatch: return static_cast<uint64_t>(list_batch);
      case Role::ListHead: return static_cast<uint64_t>(list_head);
      case Role::ListColumns: return static_cast<uint64_t>(list_columns);
      case Role::FullColumns: return static_cast<uint64_t>(full_columns);
      case Role::Error: return reinterpret_cast<uint64_t>(cuda::error_word());
      default: return pointer((*this)[static_cast<Role>(role[0])]);
    }
  }
};

// False: lists of another form than create_block_mask gives.
bool take_lists(const std::vector<Tensor>& lists, int64_t batch, int64_t heads, int64_t blocks, Arguments& a) {
  if (lists.empty()) return true;
  const Role roles[] = {Role::Num, Role::Idx, Role::FullNum, Role::FullIdx};
  for (size_t i = 0; i < lists.size(); ++i) {
    const Tensor& t = lists[i];
    if (t.scalar_type() != at::kInt || t.dim() != (i % 2 ? 4 : 3) || t.size(2) < blocks) return false;
    if (t.sizes().slice(0, 3) != lists[0].sizes()) return false;
    a[roles[i]] = t.contiguous();
  }
  int64_t b = lists[0].size(0), h = lists[0].size(1), rows = lists[0].size(2);
  if ((b != 1 && b != batch) || (h != 1 && h != heads)) return false;
  a.list_batch = b == 1 ? 0 : h * rows;
  a.list_head = h == 1 ? 0 : rows;
  a.list_columns = lists[1].size(3);
  if (lists.size() == 4) a.full_columns = lists[3].size(3);
  return true;
}

constexpr int64_t kMost = 1 << 24;  // queries, keys, batches and heads

// The greatest size that a kernel is made for that is wanted for n; 1 is apart.
int64_t most_of(int64_t n) {
  return n == 1 ? 1 : std::max<int64_t>(4096, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))));
}

// Without lists, tiles still want a size that they divide.
int64_t block_of(const Call& call, int64_t given) { return call.rows.empty() ? 128 : given; }

std::string key_of(const Call& call, bool aligned) {
  std::string key = call.functions;
  auto add = [&](int64_t n) { key.append(reinterpret_cast<const char*>(&n), sizeof n); };
  const Tensor &q = call.query, &k = call.key;
  for (int64_t n :
       {static_cast<int64_t>(q.scalar_type()), static_cast<int64_t>(q.device().index()), most_of(q.size(0)), q.size(1),
        k.size(1), most_of(q.size(2)), most_of(k.size(2)), q.size(3), call.value.size(3), call.q_block, call.kv_block,
        static_cast<int64_t>(call.rows.size()), static_cast<int64_t>(call.columns.size())})
    add(n);
  add(q.size(2) % block_of(call, call.q_block) == 0), add(k.size(2) % block_of(call, call.kv_block) == 0), add(aligned);
  add(q.size(2) == k.size(2)), add(at::globalContext().allowTF32CuBLAS());
  for (const Tensor& t : call.operands) {
    add(static_cast<int64_t>(t.scalar_type())), add(t.dim()), add(t.is_contiguous());
    for (int64_t d = 0; d < t.dim(); ++d) {
      // Which size it is, of those that are open in the kernel.
      bool query = t.size(d) == q.size(2), keys = t.size(d) == k.size(2);
      add(query ? -1 : keys ? -2 : t.size(d));
      if (!t.is_contiguous()) add(t.stride(d));
    }
  }
  return key;
}

Form form_of(const Call& call, bool aligned, int sm) {
  Form form;
  const Tensor &q = call.query, &k = call.key;
  triton::AttentionKernel& kernel = form.kernel;
  kernel.dtype = *trace::dtype_of(q.scalar_type());
  kernel.key_dim = static_cast<int>(q.size(3));
  kernel.value_dim = static_cast<int>(call.value.size(3));
  kernel.group = static_cast<int>(q.size(1) / k.size(1));
  kernel.q_block = block_of(call, call.q_block);
  kernel.kv_block = block_of(call, call.kv_block);
  kernel.lists = !call.rows.empty();
  kernel.full_lists = call.rows.size() == 4;
  kernel.even_queries = q.size(2) % kernel.q_block == 0;
  kernel.even_keys = k.size(2) % kernel.kv_block == 0;
  kernel.aligned = aligned;
  kernel.tf32 = at::globalContext().allowTF32CuBLAS();
  kernel.sm = sm;

  form.arena = std::make_shared<sym::ExprArena>();
  sym::ExprArena& arena = *form.arena;
  auto open = [&](const char* name, int64_t n) {
    return n == 1 ? arena.constant(1) : arena.symbol(name, sym::SymbolKind::Size, {2, most_of(n)});
  };
  sym::Expr queries = open("M", q.size(2)), keys = q.size(2) == k.size(2) ? queries : open("N", k.size(2));
  form.sizes = {open("B", q.size(0)), arena.constant(q.size(1)), queries, keys};
  for (const Tensor& t : call.operands) {
    kernel.operands.push_back(*trace::dtype_of(t.scalar_type()));
    TensorType type{kernel.operands.back(), *trace::device_of(t.device()), {}, {}, arena.constant(0)};
    for (int64_t d = 0; d < t.dim(); ++d)
      type.sizes.push_back(t.size(d) == q.size(2)   ? queries
                           : t.size(d) == k.size(2) ? keys
                                                    : arena.constant(t.size(d)));
    if (t.is_contiguous())
      type.strides = contiguous_strides(arena, type.sizes);
    else
      for (int64_t s : t.strides()) type.strides.push_back(arena.constant(s));
    form.operands.push_back(std::move(type));
  }
  return form;
}

triton::AttentionSource source_of(const Form& f, const Call& call, Which which) {
  std::shared_ptr<const ScoreFunctions> functions = ScoreFunctions::of(call.functions);
  std::array<std::optional<loop::Program>, graph::kScoreOutputs> programs;
  auto program = [&](graph::ScoreOutput output) -> const loop::Program* {
    if (!functions->has(output) || graph::is_score_itself(functions->graph(), output)) return nullptr;
    auto& p = programs[output];
    p.emplace(driver::score_program(functions->graph(), output, f.arena, f.sizes, f.operands));
    return &*p;
  };
  if (which == kDelta || which == kDeltaLse) return attention_delta(f.kernel, which == kDeltaLse);
  triton::ScorePrograms scores{program(graph::kScored), program(graph::kKept), nullptr, f.sizes};
  if (which == kForwardKernel) return attention_forward(f.kernel, scores);
  scores.gradient = program(graph::kGradient);
  return which == kBackwardQuery ? attention_backward_query(f.kernel, scores)
                                 : attention_backward_key(f.kernel, scores);
}

Loaded load(const Call& call, bool aligned, Which which) {
  Form form = form_of(call, aligned, cuda::compute_capability(std::max<int>(0, call.query.device().index())));
  if (form.kernel.sm < 80) throw Unsupported(Reason::UnsupportedFeature, "a GPU before compute capability 8.0");
  triton::AttentionSource made = source_of(form, call, which);
  triton::Code code = triton::compiler().compile(made.source);
  Loaded l{nullptr, code.threads, code.shared, made.rows, std::move(made.roles)};
  l.function = cuda::load(code.cubin, made.source.kernel, code.shared, std::max<int>(0, call.query.device().index()));
  return l;
}

ForkMutex& mutex() {
  static auto* m = new ForkMutex;
  return *m;
}

std::shared_ptr<Family> family_of(const Call& call, bool aligned) {
  static auto* families = new std::unordered_map<std::string, std::shared_ptr<Family>>;
  std::string key = key_of(call, aligned);
  {
    std::lock_guard lock(mutex());
    if (auto it = families->find(key); it != families->end()) return it->second;
  }
  auto made = std::make_shared<Family>();
  made->aligned = aligned;
  std::lock_guard lock(mutex());
  return families->emplace(std::move(key), std::move(made)).first->second;
}

// nullptr: there is none for this call.
const Loaded* kernel_of(Family& f, const Call& call, Which which) {
  {
    std::lock_guard lock(mutex());
    if (f.loaded[which]) return &*f.loaded[which];
    if (f.refused[which]) return nullptr;
  }
  std::optional<Loaded> made;
  std::string why;
  try {
    made = load(call, f.aligned, which);
  } catch (const Unsupported& e) {
    why = e.detail();
  } catch (const triton::Inexpressible& e) {
    why = e.what();
  } catch (const InternalError& e) {
    why = e.what();
  }
  if (!made) warn_once("flex_attention runs by PyTorch's operators, without a kernel of its own: " + why);
  std::lock_guard lock(mutex());
  if (!made) {
    f.refused[which] = true;
    return nullptr;
  }
  if (!f.loaded[which]) f.loaded[which] = std::move(made);
  return &*f.loaded[which];
}

void launch(const Loaded& kernel, const Arguments& a, int64_t tiles_of, int64_t heads) {
  const Tensor& q = a[Role::Out].defined() ? a[Role::Out] : a[Role::Query];
  c10::Device device = q.device();
  c10::SmallVector<uint64_t, 64> values;
  c10::SmallVector<void*, 64> parameters;
  for (const auto& role : kernel.roles) values.push_back(a.value(role));
  values.push_back(0), values.push_back(0);  // scratch memory, of which there is none
  for (uint64_t& v : values) parameters.push_back(&v);
  int64_t programs = (tiles_of + kernel.rows - 1) / kernel.rows * q.size(0) * heads;
  c10::DeviceGuard guard(device);
  c10::impl::VirtualGuardImpl streams(device.type());
  cuda::launch(kernel.function, {static_cast<uint32_t>(programs), kernel.threads, kernel.shared},
               streams.getStreamNativeHandle(streams.getStream(device)), parameters.data(),
               std::max<int>(0, device.index()));
}

bool is_for_kernels(const Call& call) {
  if (!call.query.is_cuda()) return false;
  for (const Tensor& t : {call.query, call.key, call.value})
    for (int64_t n : t.sizes())
      if (n == 0 || n >= kMost) return false;
  for (const Tensor& t : call.operands)
    if (t.device() != call.query.device() || !trace::dtype_of(t.scalar_type())) return false;
  return call.value.size(3) <= 256 && call.query.size(3) <= 256;
}

}  // namespace

std::vector<triton::AttentionSource> kernel_sources(const Call& call, bool backward) {
  Form form = form_of(call, true, 90);
  std::vector<triton::AttentionSource> out{source_of(form, call, kForwardKernel)};
  if (backward)
    for (Which w : {kDelta, kDeltaLse, kBackwardQuery, kBackwardKey}) out.push_back(source_of(form, call, w));
  return out;
}

bool forward_by_kernels(const Call& given, Result& result) {
  if (!is_for_kernels(given)) return false;
  Call call = given;
  for (Tensor* t : {&call.query, &call.key, &call.value}) *t = with_dense_rows(*t);
  Arguments a;
  a[Role::Query] = call.query, a[Role::Key] = call.key, a[Role::Value] = call.value;
  a[Role::Out] = result.out, a[Role::Lse] = result.lse, a[Role::Max] = result.max;
  a.operands = &call.operands;
  a.scale = call.scale;
  int64_t blocks = (call.query.size(2) + call.q_block - 1) / call.q_block;
  if (!take_lists(call.rows, call.query.size(0), call.query.size(1), blocks, a)) return false;
  bool aligned = is_aligned(call.query) && is_aligned(call.key) && is_aligned(call.value) && is_aligned(result.out);
  auto family = family_of(call, aligned);
  const Loaded* kernel = kernel_of(*family, call, kForwardKernel);
  if (!kernel) return false;
  launch(*kernel, a, call.query.size(2), call.query.size(1));
  return true;
}

bool backward_by_kernels(const Call& given, const Saved& saved, Gradients& gradients) {
  if (!is_for_kernels(given) || given.columns.size() != given.rows.size()) return false;
  Call call = given;
  for (Tensor* t : {&call.query, &call.key, &call.value}) *t = with_dense_rows(*t);
  Arguments a;
  a[Role::Query] = call.query, a[Role::Key] = call.key, a[Role::Value] = call.value;
  a[Role::Out] = with_dense_rows(saved.out),
  a[Role::GradOut] = with_dense_rows(saved.grad_out.to(call.query.scalar_type()));
  a[Role::Lse] = saved.lse.contiguous();
  bool of_lse = saved.grad_lse.defined();
  if (of_lse) a[Role::GradLse] = saved.grad_lse.contiguous();
  a[Role::Delta] = at::empty_like(a[Role::Lse]);
  a[Role::GradQuery] = gradients.query, a[Role::GradKey] = gradients.key, a[Role::GradValue] = gradients.value;
  a.operands = &call.operands;
  a.scale = call.scale;
  bool aligned = true;
  for (Role r :
       {Role::Query, Role::Key, Role::Value, Role::Out, Role::GradOut, Role::GradQuery, Role::GradKey, Role::GradValue})
    aligned = aligned && is_aligned(a[r]);
  auto family = family_of(call, aligned);
  const Loaded* delta = kernel_of(*family, call, of_lse ? kDeltaLse : kDelta);
  const Loaded* query = delta ? kernel_of(*family, call, kBackwardQuery) : nullptr;
  const Loaded* key = query ? kernel_of(*family, call, kBackwardKey) : nullptr;
  if (!key) return false;
  int64_t batch = call.query.size(0), heads = call.query.size(1), queries = call.query.size(2), keys = call.key.size(2);
  Arguments by_key = a;
  auto ceil = [](int64_t n, int64_t block) { return (n + block - 1) / block; };
  if (!take_lists(call.rows, batch, heads, ceil(queries, call.q_block), a) ||
      !take_lists(call.columns, batch, heads, ceil(keys, call.kv_block), by_key))
    return false;
  launch(*delta, a, queries, heads);
  launch(*query, a, queries, heads);
  launch(*key, by_key, keys, call.key.size(1));
  return true;
}

}  // namespace braze::launch::flex
