// Integer expressions over symbols, hash-consed in an arena and kept canonical: two equal ids are equal expressions,
// and sums of products over the same terms have one form.
//
// Semantics: mathematical integers (callers keep values inside int64). floordiv and mod are Python's: they round to
// minus infinity, and 0 <= a mod b < b for b > 0. Division by zero has no value. Comparisons and connectives yield 0
// or 1.
//
// An arena belongs to one compilation and is not thread-safe: even queries may add nodes.
//
// Symbols are sizes (of inputs), unbacked values, or loop variables. Each has an inclusive range; rules may use it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braze::sym {

// A handle into one ExprArena. Trivially copyable. Default: the constant 0.
struct Expr {
  uint32_t id = 0;
  friend bool operator==(Expr, Expr) = default;
  friend auto operator<=>(Expr, Expr) = default;
};

enum class Kind : uint8_t { Const, Symbol, Add, Mul, FloorDiv, Mod, Min, Max, Eq, Ne, Lt, Le, And, Or, Not };

enum class SymbolKind : uint8_t { Size, Unbacked, LoopVar, Indirect };

struct Range {  // inclusive
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  friend bool operator==(const Range&, const Range&) = default;
};

using Env = std::function<int64_t(Expr symbol)>;

class ExprArena {
 public:
  ExprArena();
  ~ExprArena();
  ExprArena(const ExprArena&) = delete;
  ExprArena& operator=(const ExprArena&) = delete;

  Expr constant(int64_t value);
  // Makes a new symbol; the name is for print and parse and must be unique in the arena.
  Expr symbol(std::string name, SymbolKind kind, Range range);
  std::optional<Expr> find_symbol(std::string_view name) const;
  // A symbol that no other call gave. Its name starts with `prefix`.
  Expr fresh_symbol(char prefix, SymbolKind kind, Range range);
  // The symbol with values 0 .. extent-1 at a position among others of its kind: one for each (prefix, position,
  // extent, kind), so that equal loop nests are equal expressions. Two of its users that are in scope at once must
  // differ in prefix or position.
  Expr positional_symbol(char prefix, size_t position, Expr extent, SymbolKind kind);

  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr neg(Expr a);
  Expr floordiv(Expr a, Expr b);
  Expr ceildiv(Expr a, Expr b);
  Expr mod(Expr a, Expr b);
  Expr min(Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr eq(Expr a, Expr b);
  Expr ne(Expr a, Expr b);
  Expr lt(Expr a, Expr b);
  Expr le(Expr a, Expr b);
  Expr logical_and(Expr a, Expr b);
  Expr logical_or(Expr a, Expr b);
  Expr logical_not(Expr a);

  // Products and sums over a list; the empty product is 1, the empty sum 0.
  Expr product(std::span<const Expr> terms);
  Expr sum(std::span<const Expr> terms);

  Kind kind(Expr e) const;
  std::span<const Expr> operands(Expr e) const;  // of Add/Mul: two or more, in canonical order, a constant first
  std::optional<int64_t> as_const(Expr e) const;
  bool is_const(Expr e, int64_t value) const { return as_const(e) == value; }
  std::string_view symbol_name(Expr symbol) const;
  SymbolKind symbol_kind(Expr symbol) const;
  Range range(Expr e) const;                 // by interval arithmetic over the symbols' ranges
  void set_range(Expr symbol, Range range);  // later queries use it; expressions already made stay as they are

  // Proofs. nullopt: not known.
  std::optional<bool> known(Expr condition) const;  // of a comparison or connective
  bool known_equal(Expr a, Expr b);
  bool known_multiple(Expr a, int64_t divisor);  // a is a multiple of divisor for every value of the symbols

  // Symbols, or formulas as e has them, by others.
  Expr substitute(Expr e, std::span<const std::pair<Expr, Expr>> map);
  bool contains(Expr e, Expr symbol) const;
  bool depends_on_data(Expr e) const;                           // has an unbacked symbol
  void collect_symbols(Expr e, std::vector<Expr>& into) const;  // appends those not there yet
  // e == coefficient * symbol + rest, with neither containing the symbol; nullopt where e is not affine in it.
  struct Affine {
    Expr coefficient, rest;
  };
  std::optional<Affine> affine_in(Expr e, Expr symbol);

  int64_t evaluate(Expr e, const Env& env) const;

  // How large a symbol is in the calls that are to be seen, rounded up to a power of two: for choices that change no
  // result. Where nothing is expected of a symbol in e, `likely` answers `unknown`, as far as its range allows.
  void expect(Expr symbol, int64_t value);
  std::optional<int64_t> expected(Expr e) const;
  int64_t likely(Expr e, int64_t unknown) const;

  std::string print(Expr e) const;
  // The inverse of print; throws InternalError with the position. Unknown names are made as Size symbols with range >=
  // 0.
  Expr parse(std::string_view text);

  struct Impl;  // symbolic/arena.h

 private:
  std::unique_ptr<Impl> impl_;
};

// A flat postfix program for guards and size formulas: evaluates over an array of symbol values, no allocation.
class IntProgram {
 public:
  // `inputs[i]` is the symbol read from slot i. Throws InternalError for a symbol that is not among them.
  static IntProgram compile(const ExprArena& arena, std::span<const Expr> outputs, std::span<const Expr> inputs);
  void run(const int64_t* inputs, int64_t* outputs) const;
  size_t outputs() const { return outputs_; }
  std::string serialize() const;
  static IntProgram deserialize(std::string_view bytes);

 private:
  struct Step {
    uint8_t code;
    int64_t value;
  };
  std::vector<Step> steps_;
  size_t outputs_ = 0, depth_ = 0;
};

}  // namespace braze::sym
