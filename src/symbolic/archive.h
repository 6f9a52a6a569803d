// Values that hold expressions as bytes and back. What a type consists of is said once for both ways, beside the type:
//   template <class A>
//   void fields(A& a, View& v) {
//     auto& [buffer, sizes, strides] = v;  // all members: one that is added later does not build
//     a(buffer, sizes, strides);
//   }
// and which numbers an enum may have by `constexpr bool is_value(E)`. Numbers, texts, lists, pairs, variants, optionals
// and ids are known. An archive of one build is read by that build alone.
#pragma once
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/ids.h"
#include "symbolic/expr.h"

namespace braze::sym {

// The symbols that a value mentions, and what is known of each.
class Symbols {
 public:
  void add(const ExprArena& arena, Expr symbol) {
    by_name_.try_emplace(std::string(arena.symbol_name(symbol)), symbol);
  }
  std::vector<Expr> list() const;  // by name
  // All that a choice about an expression can depend on: name, kind, range, the size that is expected.
  void describe(const ExprArena& arena, ByteWriter& out) const;

 private:
  std::map<std::string, Expr> by_name_;
};

class UnknownSymbol : public InternalError {
 public:
  using InternalError::InternalError;
};

class Packer {
 public:
  // `symbols`: the only ones that expressions may mention; of another, UnknownSymbol is thrown.
  Packer(ExprArena& arena, std::vector<Expr> symbols);
  // For keys: equal expressions become equal bytes, whatever else their arenas hold. The symbols are added to `noted`.
  Packer(ExprArena& arena, Symbols& noted);

  template <class... T>
  void operator()(const T&... values) {
    (pack(values), ...);
  }
  const ExprArena& arena() const { return arena_; }
  std::string take() { return out_.take(); }

 private:
  template <class T>
  void pack(const T& v) {
    if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>)
      out_.number(v);
    else if constexpr (std::is_integral_v<T>)
      out_.integer(v);
    else if constexpr (std::is_enum_v<T>)
      out_.number(static_cast<std::make_unsigned_t<std::underlying_type_t<T>>>(v));
    else
      fields(*this, const_cast<T&>(v));  // which reads it
  }
  void pack(double v) { out_.real(v); }
  void pack(const std::string& v) { out_.text(v); }
  void pack(const std::monostate&) {}
  void pack(Expr e);
  template <class Tag>
  void pack(Id<Tag> id) {
    out_.number(id.index + uint32_t{1});  // 0: none
  }
  template <class T>
  void pack(const std::vector<T>& list) {
    out_.number(list.size());
    for (const auto& v : list) pack(static_cast<const T&>(v));
  }
  template <class A, class B>
  void pack(const std::pair<A, B>& v) {
    pack(v.first), pack(v.second);
  }
  template <class T>
  void pack(const std::optional<T>& v) {
    pack(v.has_value());
    if (v) pack(*v);
  }
  template <class... T>
  void pack(const std::variant<T...>& v) {
    out_.number(v.index());
    std::visit([&](const auto& x) { pack(x); }, v);
  }
  const std::string& canonical(Expr e);

  ExprArena& arena_;
  Symbols* noted_ = nullptr;                         // of a key
  std::unordered_map<uint32_t, std::string> texts_;  // of a key: by id
  std::unordered_map<uint32_t, uint64_t> numbers_;   // else: of symbols and of what was written before, by id
  uint64_t compounds_ = 0;
  ByteWriter out_;
};

class Unpacker {
 public:
  // `symbols`: as the Packer had them, here those of `arena`.
  Unpacker(std::string_view bytes, ExprArena& arena, std::vector<Expr> symbols)
      : in_(bytes), arena_(arena), symbols_(symbols.size()), known_(std::move(symbols)) {}

  template <class... T>
  void operator()(T&... values) {
    (unpack(values), ...);
  }
  template <class T>
  T get() {
    T v{};
    unpack(v);
    return v;
  }
  size_t count() { return in_.count(); }
  void finish() const {
    if (!in_.at_end()) damaged("more than was written");
  }
  ExprArena& arena() const { return arena_; }

 private:
  template <class T>
  void unpack(T& v) {
    if constexpr (std::is_same_v<T, bool>)
      v = in_.number(1) != 0;
    else if constexpr (std::is_unsigned_v<T>)
      v = static_cast<T>(in_.number(std::numeric_limits<T>::max()));
    else if constexpr (std::is_integral_v<T>)
      v = narrowed<T>(in_.integer());
    else if constexpr (std::is_enum_v<T>) {
      v = static_cast<T>(in_.number(static_cast<uint64_t>(std::numeric_limits<std::underlying_type_t<T>>::max())));
      if (!is_value(v)) damaged("an unknown enumerator");
    } else
      fields(*this, v);
  }
  void unpack(double& v) { v = in_.real(); }
  void unpack(std::string& v) { v = in_.text(); }
  void unpack(std::monostate&) {}
  void unpack(Expr& e) { e = expr(0); }
  template <class Tag>
  void unpack(Id<Tag>& id) {
    id.index = static_cast<uint32_t>(in_.number(UINT32_MAX)) - 1;
  }
  template <class T>
  void unpack(std::vector<T>& list) {
    size_t n = in_.count();
    list.clear();
    list.reserve(n);
    for (size_t i = 0; i < n; ++i) list.push_back(get<T>());
  }
  template <class A, class B>
  void unpack(std::pair<A, B>& v) {
    unpack(v.first), unpack(v.second);
  }
  template <class T>
  void unpack(std::optional<T>& v) {
    v.reset();
    if (get<bool>()) v = get<T>();
  }
  template <class... T>
  void unpack(std::variant<T...>& v) {
    uint64_t which = in_.number(sizeof...(T) - 1);
    [&]<size_t... i>(std::index_sequence<i...>) {
      ((which == i ? unpack(v.template emplace<i>()) : void()), ...);
    }(std::index_sequence_for<T...>());
  }
  template <class T>
  static T narrowed(int64_t v) {
    if (v < std::numeric_limits<T>::min() || v > std::numeric_limits<T>::max()) damaged("a number out of range");
    return static_cast<T>(v);
  }
  Expr expr(int depth);
  Expr compound(Kind kind, const std::vector<Expr>& operands);

  ByteReader in_;
  ExprArena& arena_;
  size_t symbols_;
  std::vector<Expr> known_;  // symbols, then compound expressions in the order of their definition
};

}  // namespace braze::sym
