// Attention with functions of its scores by PyTorch's operators: the scores of some queries at a time, so that memory
// stays bounded.
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "launch/flex_attention.h"
#include "launch/score_functions.h"

namespace braze::launch::flex {
namespace {

using at::Tensor;

const double kLn2 = std::log(2.0);

class Scores {
 public:
  explicit Scores(const Call& call)
      : call_(call),
        functions_(ScoreFunctions::of(call.functions)),
        group(call.query.size(1) / call.key.size(1)),
        key(call.key.to(at::kFloat).repeat_interleave(group, 1)),
        value(call.value.repeat_interleave(group, 1)) {
    if (call.rows.empty() || call.query.is_cuda() || !functions_->has(graph::kKept)) return;
    // The keys that each block of queries meets, whatever the batch and head: the mask leaves none of the others.
    met_.assign(static_cast<size_t>(call.rows[0].size(2)), {INT64_MAX, 0});
    for (size_t list = 0; list < call.rows.size(); list += 2) {
      Tensor num = call.rows[list].to(at::kLong).contiguous(), idx = call.rows[list + 1].to(at::kLong).contiguous();
      const int64_t *n = num.const_data_ptr<int64_t>(), *i = idx.const_data_ptr<int64_t>(), columns = idx.size(3);
      for (int64_t row = 0; row < num.numel(); ++row) {
        auto& [first, end] = met_[static_cast<size_t>(row % num.size(2))];
        for (int64_t k = 0; k < n[row]; ++k) {
          first = std::min(first, i[row * columns + k] * call.kv_block);
          end = std::max(end, (i[row * columns + k] + 1) * call.kv_block);
        }
      }
    }
  }

  // How many queries are taken at a time.
  int64_t rows() const {
    int64_t row = call_.query.size(0) * call_.query.size(1) * call_.key.size(2) * 4;
    int64_t most = call_.query.is_cuda() ? int64_t{1} << 29 : int64_t{1} << 23;
    return std::min(std::max<int64_t>(most / std::max<int64_t>(row, 1), 16), call_.query.size(2));
  }

  void at(int64_t first, int64_t end) {
    query = call_.query.slice(2, first, end).to(at::kFloat);
    first_key = 0, end_key = call_.key.size(2);
    if (!met_.empty()) {
      int64_t low = INT64_MAX, high = 0;
      for (int64_t b = first / call_.q_block; b <= (end - 1) / call_.q_block; ++b) {
        low = std::min(low, met_[static_cast<size_t>(b)].first);
        high = std::max(high, met_[static_cast<size_t>(b)].second);
      }
      first_key = low < high ? low : 0, end_key = std::min(end_key, low < high ? high : call_.kv_block);
    }
    Tensor scores = at::matmul(query, of_keys(key).mT()).mul_(call_.scale);
    auto options = call_.query.options().dtype(at::kLong);
    auto range = [&](int64_t from, int64_t to, int64_t dim) {
      int64_t sizes[] = {1, 1, 1, 1};
      sizes[dim] = to - from;
      return at::arange(from, to, options).view(sizes);
    };
    inputs_ = {scores,
               range(0, scores.size(0), 0),
               range(0, scores.size(1), 1),
               range(first, end, 2),
               range(first_key, end_key, 3),
               Tensor()};
    post = functions_->has(graph::kScored) ? run(graph::kScored).to(at::kFloat).expand_as(scores) : scores;
    kept = functions_->has(graph::kKept) ? run(graph::kKept) : Tensor();
    if (kept.defined()) post = at::where(kept, post, -INFINITY);
  }

  // The part of a tensor of all keys that the scores are of.
  Tensor of_keys(const Tensor& t) const { return t.slice(2, first_key, end_key); }

  // Of the scores, from that of what is made of them.
  Tensor gradient(const Tensor& tangent) {
    inputs_[graph::kTangent] = kept.defined() ? at::where(kept, tangent, 0.0) : tangent;
    if (!functions_->has(graph::kGradient)) return inputs_[graph::kTangent];
    Tensor g = run(graph::kGradient).to(at::kFloat).expand_as(tangent);
    return kept.defined() ? at::where(kept, g, 0.0) : g;
  }

 private:
  Tensor run(graph::ScoreOutput output) const { return functions_->run(output, inputs_, call_.operands); }

  const Call& call_;
  std::shared_ptr<const ScoreFunctions> functions_;
  std::array<Tensor, graph::kScoreInputs> inputs_;
  std::vector<std::pair<int64_t, int64_t>> met_;  // per block of queries: first key and end; empty: all

 public:
  int64_t first_key = 0, end_key = 0;
  int64_t group;
  Tensor key, value;         // of every head of the queries; the key as f32
  Tensor query, post, kept;  // at the queries at hand
};

}  // namespace

Result forward_by_operators(const Call& call) {
  c10::AutoGradMode off(false);
  Scores s(call);
  std::vector<Tensor> out, lse, max;
  for (int64_t m = 0, n = call.query.size(2), step = s.rows(); m < n; m += step) {
    s.at(m, std::min(m + step, n));
    lse.push_back(at::logsumexp(s.post, {-1}).div_(kLn2));
    max.push_back(at::amax(s.post, {-1}).div_(kLn2));
    out.push_back(at::matmul(at::_safe_softmax(s.post, -1).to(call.query.scalar_type()), s.of_keys(s.value)));
  }
  return {at::cat(out, 2), at::cat(lse, 2), at::cat(max, 2)};
}

Gradients backward_by_operators(const Call& call, const Saved& saved) {
  c10::AutoGradMode off(false);
  Scores s(call);
  Tensor value = s.value.to(at::kFloat);
  Tensor grad_key = at::zeros(s.key.sizes(), s.key.options()), grad_value = at::zeros(value.sizes(), value.options());
  std::vector<Tensor> grad_query;
  for (int64_t m = 0, n = call.query.size(2), step = s.rows(); m < n; m += step) {
    int64_t end = std::min(m + step, n);
    s.at(m, end);
    auto part = [&](const Tensor& t) { return t.slice(2, m, end).to(at::kFloat); };
    Tensor g = part(saved.grad_out), lse = part(saved.lse).mul(kLn2).unsqueeze(-1);
    Tensor weights = at::where(lse == -INFINITY, 0.0, at::exp(s.post - lse));
    Tensor delta = (part(saved.out) * g).sum({-1}, true);
    if (saved.grad_lse.defined()) delta -= part(saved.grad_lse).div(kLn2).unsqueeze(-1);
    s.of_keys(grad_value).add_(at::matmul(weights.mT(), g));
    Tensor scores = s.gradient(weights * (at::matmul(g, s.of_keys(value).mT()) - delta));
    grad_query.push_back(at::matmul(scores, s.of_keys(s.key)).mul_(call.scale));
    s.of_keys(grad_key).add_(at::matmul(scores.mT(), s.query).mul_(call.scale));
  }
  auto of_group = [&](const Tensor& t) {
    return s.group == 1 ? t : t.view({t.size(0), t.size(1) / s.group, s.group, t.size(2), t.size(3)}).sum(2);
  };
  return {at::cat(grad_query, 2), of_group(grad_key), of_group(grad_value)};
}

}  // namespace braze::launch::flex
