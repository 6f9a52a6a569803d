// What a model's attention is made of, read from the last product backwards by the rows of passes/attention_forms.def.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "passes/rewrite.h"

namespace braze::passes {

// softmax(scale * q @ k + masks, keys) @ v, over values of the graph that was read.
struct Attention {
  struct Mask {
    enum class Kind : uint8_t { Add, Forbid, Allow };
    Kind kind;
    ValueId value;   // Add: what is added; else of bool
    double low = 0;  // Forbid, Allow: what stands where a key is forbidden, as something that is added
    size_t rank;     // of the scores that it broadcasts to
  };
  // Operands of batched products: [batch * heads, queries, features], [.., features, keys], [.., keys, features]. The
  // first two may be the values' type made wider.
  ValueId q, k, v;
  double scale = 1;
  std::vector<Mask> masks;         // in the order in which they come
  bool along_keys = false;         // the softmax was read
  bool means = false;              // a query without a key has the mean of the values, else NaN
  std::array<sym::Expr, 4> sizes;  // batch, heads, queries, keys
};

class AttentionReader {
 public:
  explicit AttentionReader(const Graph& g);

  // Of the node that gives attention's result: [batch, heads, queries, features], or where these are not told apart
  // the product, [heads, queries, features]. nullopt: it gives none, or something between is read elsewhere, too.
  std::optional<Attention> read(NodeId n) const;

 private:
  const Graph& g_;
  std::vector<uint32_t> uses_;
  std::vector<NodeId> product_;  // per node: the product whose result it gives
};

std::span<const std::string_view> attention_form_names();

// What a value shows in other sizes, or is a copy of, its elements in the same order; invalid: it was computed.
ValueId seen_by(const Graph& g, ValueId v);
// The value whose last two dimensions it shows the other way around; invalid: it is something else.
ValueId turned_from(const Graph& g, ValueId v);
// The value that a factor is `scale` times, or a conversion of.
struct Factor {
  ValueId value;
  double scale;
};
std::optional<Factor> scaled_from(const Graph& g, ValueId v);

}  // namespace braze::passes
