#include "launch/attention_mask.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "graph/forbidden_score.h"

namespace braze::launch {
namespace {

constexpr int64_t kGrain = int64_t{1} << 20;  // bytes that a thread reads at least

// Rows of elements of a mask: each begins with those that say yes.
class Rows {
 public:
  // nullopt: it has no such elements.
  static std::optional<Rows> of(const at::Tensor& mask, int64_t queries, int64_t keys) {
    const int64_t dims = mask.dim();
    if (dims < 2 || dims > 4 || queries < 1 || keys < 1 || mask.size(-1) != keys || mask.size(-2) != queries ||
        (mask.stride(-1) != 1 && keys > 1))
      return std::nullopt;
    Rows r(mask, keys);
    const at::ScalarType type = mask.scalar_type();
    if (type != at::kBool && type != at::kFloat && type != at::kDouble && type != at::kHalf && type != at::kBFloat16)
      return std::nullopt;
    // Dimensions along which it is the same hold it once.
    for (int64_t d = 0; d < dims - 1; ++d) {
      const auto to = static_cast<size_t>(4 - dims + d);
      r.sizes_[to] = mask.stride(d) == 0 && d < dims - 2 ? 1 : mask.size(d);
      r.strides_[to] = mask.stride(d) * r.element_;
    }
    if (r.count() == 0) return std::nullopt;
    return r;
  }

  // Whether all rows allow `allowed(i)` keys from the first on, and forbid the others. Rows that a mask of padding
  // cuts off are looked at first.
  bool allow(bool up_to_itself) const {
    if (up_to_itself && sizes_[2] != keys_) return false;
    const int64_t queries = sizes_[2], count = this->count();
    for (int64_t row : {count - 1, queries - 1, int64_t{0}, queries / 2})
      if (!fits(row, up_to_itself)) return false;
    struct Search {
      const Rows* rows;
      bool up_to_itself;
      std::atomic<bool> fits{true};
    } search{this, up_to_itself};
    const int64_t grain = std::max<int64_t>(1, kGrain / (keys_ * element_));
    parallel_for(
        0, count, grain,
        [](void* context, int64_t from, int64_t to) {
          auto& s = *static_cast<Search*>(context);
          for (int64_t row = from; row < to && s.fits.load(std::memory_order_relaxed); ++row)
            if (!s.rows->fits(row, s.up_to_itself)) s.fits.store(false, std::memory_order_relaxed);
        },
        &search);
    return search.fits;
  }

 private:
  Rows(const at::Tensor& mask, int64_t keys)
      : data_(static_cast<const char*>(mask.const_data_ptr())),
        type_(mask.scalar_type()),
        element_(static_cast<int64_t>(mask.element_size())),
        keys_(keys) {}

  int64_t count() const { return sizes_[0] * sizes_[1] * sizes_[2]; }

  bool fits(int64_t row, bool up_to_itself) const {
    const int64_t query = row % sizes_[2], rest = row / sizes_[2];
    const char* first = data_ + query * strides_[2] + rest % sizes_[1] * strides_[1] + rest / sizes_[1] * strides_[0];
    const int64_t allowed = up_to_itself ? query + 1 : keys_;
    return says(first, true) && all_equal(first, allowed) &&
           (allowed == keys_ ||
            (says(first + allowed * element_, false) && all_equal(first + allowed * element_, keys_ - allowed)));
  }
  bool all_equal(const char* first, int64_t elements) const {
    return std::memcmp(first, first + element_, static_cast<size_t>((elements - 1) * element_)) == 0;
  }
  // What a score is given by it: nothing, or so much that no weight is left.
  bool says(const char* element, bool yes) const {
    auto number = [&](auto x, DType dtype) {
      std::memcpy(&x, element, sizeof x);
      const auto value = static_cast<double>(x);
      return yes ? value == 0 : value <= graph::forbidden_score(dtype);
    };
    switch (type_) {
      case at::kBool: return *element == (yes ? 1 : 0);
      case at::kHalf: return number(at::Half(), DType::F16);
      case at::kBFloat16: return number(at::BFloat16(), DType::BF16);
      case at::kFloat: return number(0.0F, DType::F32);
      default: return number(0.0, DType::F64);
    }
  }

  const char* data_;
  at::ScalarType type_;
  int64_t element_, keys_;                   // bytes; elements of a row
  std::array<int64_t, 3> sizes_{1, 1, 1};    // batches, heads, queries
  std::array<int64_t, 3> strides_{0, 0, 0};  // bytes
};

}  // namespace

std::optional<AttentionMask> AttentionMask::of(const plan::Extern& step) {
  const loop::ExternCall& call = step.call;
  std::optional<AttentionMask> out;
  if (call.op == graph::Op::_scaled_dot_product_flash_attention_for_cpu)
    out = AttentionMask(0, 4, 5);
  else if (call.op == graph::Op::_scaled_dot_product_flash_attention_for_cpu_backward)
    out = AttentionMask(1, 7, 8);
  if (!out || call.args.size() <= out->mask_) return std::nullopt;
  auto* causal = std::get_if<bool>(&call.args[out->causal_]);
  auto* mask = std::get_if<loop::ViewRef>(&call.args[out->mask_]);
  return causal && !*causal && mask && mask->valid() ? out : std::nullopt;
}

void AttentionMask::leave_out(std::vector<c10::IValue>& arguments) const {
  const at::Tensor &query = arguments[query_].toTensor(), &key = arguments[query_ + 1].toTensor();
  const auto rows = Rows::of(arguments[mask_].toTensor(), query.size(-2), key.size(-2));
  if (!rows) return;
  const bool all = rows->allow(false);
  if (!all && !rows->allow(true)) return;
  arguments[mask_] = c10::IValue();
  arguments[causal_] = !all;
}

}  // namespace braze::launch
