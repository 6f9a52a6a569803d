#include "launch/flex_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "launch/operators.h"

namespace braze::launch::flex {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kForwardSchema =
    "flex_attention(Tensor query, Tensor key, Tensor value, Tensor[] rows, Tensor[] columns, Tensor[] operands, "
    "str functions, int q_block, int kv_block, float scale) -> (Tensor, Tensor, Tensor)";
constexpr const char* kBackwardSchema =
    "flex_attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor out, Tensor lse, Tensor query, Tensor key, "
    "Tensor value, Tensor[] rows, Tensor[] columns, Tensor[] operands, str functions, int q_block, int kv_block, "
    "float scale) -> (Tensor, Tensor, Tensor)";

using Three = std::tuple<Tensor, Tensor, Tensor>;
using ForwardSignature = Three(const Tensor&, const Tensor&, const Tensor&, at::TensorList, at::TensorList,
                               at::TensorList, c10::string_view, int64_t, int64_t, double);
using BackwardSignature = Three(const Tensor&, const std::optional<Tensor>&, const Tensor&, const Tensor&,
                                const Tensor&, const Tensor&, const Tensor&, at::TensorList, at::TensorList,
                                at::TensorList, c10::string_view, int64_t, int64_t, double);

template <class Signature>
c10::TypedOperatorHandle<Signature> handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// Sizes of `like` but for the last, with its order of strides, the last dimension innermost: as eager lays out what it
// gives.
Tensor laid_out_like(const Tensor& like, const c10::SymInt& last) {
  c10::SymDimVector sizes(like.sym_sizes().begin(), like.sym_sizes().end());
  sizes.back() = last;
  std::vector<size_t> order(sizes.size() - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  auto strides = like.sym_strides();
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return strides[b].guard_int(__FILE__, __LINE__) < strides[a].guard_int(__FILE__, __LINE__);
  });
  c10::SymDimVector made(sizes.size(), c10::SymInt(1));
  c10::SymInt next = last;
  for (size_t i = order.size(); i-- > 0;) {
    made[order[i]] = next;
    next = next * sizes[order[i]];
  }
  return at::empty_strided_symint(sizes, made, like.options());
}

Call call_of(const Tensor& q, const Tensor& k, const Tensor& v, at::TensorList rows, at::TensorList columns,
             at::TensorList operands, c10::string_view functions, int64_t q_block, int64_t kv_block, double scale) {
  return {q, k, v, rows.vec(), columns.vec(), operands.vec(), std::string(functions), q_block, kv_block, scale};
}

Three meta(const Tensor& q, const Tensor&, const Tensor& v, at::TensorList, at::TensorList, at::TensorList,
           c10::string_view, int64_t, int64_t, double) {
  auto rows = q.sym_sizes().slice(0, 3);
  auto statistics = [&] { return at::empty_symint(rows, q.options().dtype(at::kFloat)); };
  return {laid_out_like(q, v.sym_size(3)), statistics(), statistics()};
}

Three backward_meta(const Tensor&, const std::optional<Tensor>&, const Tensor&, const Tensor&, const Tensor& q,
                    const Tensor& k, const Tensor& v, at::TensorList, at::TensorList, at::TensorList, c10::string_view,
                    int64_t, int64_t, double) {
  return {laid_out_like(q, q.sym_size(3)), laid_out_like(k, k.sym_size(3)), laid_out_like(v, v.sym_size(3))};
}

Three forward(const Tensor& q, const Tensor& k, const Tensor& v, at::TensorList rows, at::TensorList columns,
              at::TensorList operands, c10::string_view functions, int64_t q_block, int64_t kv_block, double scale) {
  Call call = call_of(q, k, v, rows, columns, operands, functions, q_block, kv_block, scale);
  auto [out, lse, max] = meta(q, k, v, rows, columns, operands, functions, q_block, kv_block, scale);
  Result result{out, lse, max};
  if (out.numel() == 0 || k.size(2) == 0) return {out.zero_(), lse.fill_(-INFINITY), max.fill_(-INFINITY)};
  if (!forward_by_kernels(call, result)) {
    Result made = forward_by_operators(call);
    out.copy_(made.out), lse.copy_(made.lse), max.copy_(made.max);
  }
  return {out, lse, max};
}

Three backward(const Tensor& grad_out, const std::optional<Tensor>& grad_lse, const Tensor& out, const Tensor& lse,
               const Tensor& q, const Tensor& k, const Tensor& v, at::TensorList rows, at::TensorList columns,
               at::TensorList operands, c10::string_view functions, int64_t q_block, int64_t kv_block, double scale) {
  Call call = call_of(q, k, v, rows, columns, operands, functions, q_block, kv_block, scale);
  Saved saved{out, lse, grad_out, grad_lse.value_or(Tensor())};
  Gradients g{laid_out_like(q, q.sym_size(3)), laid_out_like(k, k.sym_size(3)), laid_out_like(v, v.sym_size(3))};
  if (out.numel() == 0 || k.numel() == 0) return {g.query.zero_(), g.key.zero_(), g.value.zero_()};
  if (!backward_by_kernels(call, saved, g)) {
    Gradients made = backward_by_operators(call, saved);
    g.query.copy_(made.query), g.key.copy_(made.key), g.value.copy_(made.value);
  }
  return {g.query, g.key, g.value};
}

class FlexAttention : public torch::autograd::Function<FlexAttention> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, Tensors rows,
                               Tensors columns, Tensors operands, std::string functions, int64_t q_block,
                               int64_t kv_block, double scale) {
    at::AutoDispatchBelowADInplaceOrView below;
    static auto op = handle<ForwardSignature>("braze::flex_attention");
    auto [out, lse, max] = op.call(q, k, v, rows, columns, operands, functions, q_block, kv_block, scale);
    variable_list saved{q, k, v, out, lse};
    for (const Tensors* list : {&rows, &columns, &operands}) saved.insert(saved.end(), list->begin(), list->end());
    ctx->save_for_backward(saved);
    ctx->saved_data["rows"] = static_cast<int64_t>(rows.size());
    ctx->saved_data["columns"] = static_cast<int64_t>(columns.size());
    ctx->saved_data["functions"] = std::move(functions);
    ctx->saved_data["q_block"] = q_block;
    ctx->saved_data["kv_block"] = kv_block;
    ctx->saved_data["scale"] = scale;
    ctx->mark_non_differentiable({max});
    ctx->set_materialize_grads(false);
    return {out, lse, max};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables(), result(10);
    if (!grads[0].defined() && !grads[1].defined()) return result;
    auto end = [&](const char* name) { return ctx->saved_data[name].toInt(); };
    auto at = saved.begin() + 5;
    Tensors rows(at, at + end("rows"));
    at += end("rows");
    Tensors columns(at, at + end("columns"));
    at += end("columns");
    Tensors operands(at, saved.end());
    Tensor grad_out = grads[0].defined() ? grads[0] : at::zeros_like(saved[3]);
    std::optional<Tensor> grad_lse;
    if (grads[1].defined()) grad_lse = grads[1];
    static auto op = handle<BackwardSignature>("braze::flex_attention_backward");
    std::tie(result[0], result[1], result[2]) =
        op.call(grad_out, grad_lse, saved[3], saved[4], saved[0], saved[1], saved[2], rows, columns, operands,
                ctx->saved_data["functions"].toStringRef(), end("q_block"), end("kv_block"),
                ctx->saved_data["scale"].toDouble());
    return result;
  }
};

Three with_history(const Tensor& q, const Tensor& k, const Tensor& v, at::TensorList rows, at::TensorList columns,
                   at::TensorList operands, c10::string_view functions, int64_t q_block, int64_t kv_block,
                   double scale) {
  variable_list made = FlexAttention::apply(q, k, v, rows.vec(), columns.vec(), operands.vec(), std::string(functions),
                                            q_block, kv_block, scale);
  return {made[0], made[1], made[2]};
}

void define_operators() {
  using torch::Library;
  static Library definitions(Library::FRAGMENT, "braze", std::nullopt, __FILE__, __LINE__);
  definitions.def(kForwardSchema);
  definitions.def(kBackwardSchema);
  auto backend = [](c10::DispatchKey key) { return Library(Library::IMPL, "braze", key, __FILE__, __LINE__); };
  static Library kernels[] = {backend(c10::DispatchKey::CPU), backend(c10::DispatchKey::CUDA),
                              backend(c10::DispatchKey::Meta), backend(c10::DispatchKey::Autograd)};
  for (int i : {0, 1}) {
    kernels[i].impl("flex_attention", forward);
    kernels[i].impl("flex_attention_backward", backward);
  }
  kernels[2].impl("flex_attention", meta);
  kernels[2].impl("flex_attention_backward", backward_meta);
  kernels[3].impl("flex_attention", with_history);
  kernels[3].impl("flex_attention_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace

void register_operators() { [[maybe_unused]] static const bool once = (define_operators(), true); }

}  // namespace braze::launch::flex
