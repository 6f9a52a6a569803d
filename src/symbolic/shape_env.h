// What one capture assumes of the sizes that it leaves open: symbols with hints (their values in the call that is being
// captured), and the facts that decisions were made on.
//
// A *base* symbol has a value that a later call can read (a size of an input, an integer argument). The facts are over
// base symbols: a call is served by what was captured when each base symbol is inside of its range and each fact holds.
//
// An equality that was decided is used: the symbol that it determines is *replaced* from then on. A divisibility that
// was decided replaces the symbol by a multiple of a *derived* symbol, whose definition is over base symbols.
//
// Unbacked symbols stand for values that only the run knows. Nothing is decided about them beyond what is provable; but
// something may be *assumed*, which the program has to assert when it runs, before it does anything that relies on it.
#pragma once
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "symbolic/expr.h"

namespace braze::sym {

// A decision that needs the value of an unbacked symbol.
struct Undecidable : std::exception {
  explicit Undecidable(Expr e) : condition(e) {}
  const char* what() const noexcept override { return "a decision needs a value that is not known before the run"; }
  Expr condition;
};

// What the run is to check, as a comparison whose sides are kept apart: what was learnt from it must not prove it.
struct Assertion {
  Kind relation = Kind::Eq;  // Eq, Ne, Lt, Le
  Expr left, right;
};

// What the run says where an assertion does not hold: a class of exceptions, and a text in which {0}, {1}... stand for
// the values.
struct Failure {
  std::string exception = "RuntimeError", message;
  std::vector<Expr> values;
};

class ShapeEnv {
 public:
  struct Fact {
    Expr condition;
    uint32_t where;  // what the `where` function said
  };
  struct Derived {
    Expr symbol, definition;
  };

  explicit ShapeEnv(std::shared_ptr<ExprArena> arena) : arena_(std::move(arena)) {}
  ExprArena& arena() const { return *arena_; }
  const std::shared_ptr<ExprArena>& shared_arena() const { return arena_; }

  // A base symbol. Throws InternalError if the hint is outside of the range.
  Expr add_symbol(const std::string& name, Range range, int64_t hint);
  // Duck shaping: places with equal keys share one symbol; the caller guards that they stay equal. The key is the
  // history of values of a place, newest first, so that places that were once told apart are not taken for one.
  Expr duck_symbol(const std::string& name, Range range, int64_t hint, const std::vector<int64_t>& key);
  Expr add_unbacked(Range range, std::string origin = {});  // u0, u1, ...; `origin`: what defines it, for messages

  // A base symbol without a hint: calls read it, but nothing is decided by the value that this one has.
  Expr add_unbacked_base(Range range, std::string origin);

  // The expression with what was learnt so far put in.
  Expr simplify(Expr e);
  bool has_hint(Expr e) const;
  int64_t hint(Expr e) const;
  // The truth of a condition under the hints, recorded as a fact unless it is provable. Throws Undecidable.
  bool decide(Expr condition);
  // Of what was decided to have one value: it is a constant from then on. Where no rule of arithmetic says what its
  // symbols must be, they get the values of their hints.
  void pin(Expr e);
  // The truth for all values that the facts and assumptions leave; nullopt: not known.
  std::optional<bool> known(Expr condition);
  // As known(), of unbacked sizes that are at least 2: for questions whose answer makes no difference below.
  std::optional<bool> usually(Expr condition);
  // Takes a condition on unbacked symbols for true; what the run is to assert for it goes to set_assert's function.
  // Throws Undecidable where none was set.
  void assume(Expr condition, const Failure& failure);
  // The one value that the assumptions leave.
  std::optional<int64_t> assumed_value(Expr e);
  size_t replacements() const { return replaced_.size(); }  // of symbols, so far

  using Assert = std::function<void(const Assertion&, const Failure&)>;
  void set_assert(Assert to) { assert_ = std::move(to); }
  bool has_unbacked() const { return !unbacked_.empty(); }
  // A condition as text, with what its unbacked symbols are.
  std::string explain(Expr e) const;

  // Named at every new fact, e.g. the user's line.
  void set_where(std::function<uint32_t()> where) { where_ = std::move(where); }

  const std::vector<Expr>& base() const { return base_; }
  const std::vector<Derived>& derived() const { return derived_; }
  const std::vector<Fact>& facts() const { return facts_; }
  // The range that a base symbol was made with; arena().range() is what the facts left of it.
  Range declared(Expr base) const;
  // The fact that fixed a symbol to one value; nullptr: none did.
  const Fact* specialised(Expr base);
  // In terms of base symbols: derived ones by their definitions.
  Expr over_base(Expr e);

 private:
  std::optional<bool> assumed(Expr condition);
  void learn_assumed(Expr fact);
  void note_assumed(Expr fact);
  std::vector<uint32_t> bounds_with_symbols_of(Expr e) const;  // into bounds_, in order
  void learn(Expr fact);
  void learn_equal(Expr a, Expr b);
  void learn_remainder(Expr e, Expr divisor, int64_t rest);  // e mod divisor == rest
  void narrow(Expr symbol, Range range);
  void replace(Expr symbol, Expr by);

  std::shared_ptr<ExprArena> arena_;
  std::vector<Expr> base_;
  std::vector<Range> declared_;  // per base symbol
  std::vector<Derived> derived_;
  std::vector<std::pair<Expr, int64_t>> hints_;
  std::vector<std::pair<Expr, Expr>> replaced_;  // symbol -> expression without replaced symbols
  std::vector<Fact> facts_;
  std::vector<Expr> unbacked_;
  std::vector<std::string> origins_;  // of unbacked_
  Assert assert_;
  std::unordered_set<uint32_t> assumed_;  // conditions
  std::vector<Expr> bounds_;              // of these, comparisons as expressions that are at most zero
  std::unordered_map<uint32_t, std::vector<uint32_t>> bounds_of_;  // by symbol, into bounds_
  std::vector<std::pair<Expr, Expr>>
      assumed_equal_;  // unbacked symbol -> what it is assumed to be: put in for proofs alone
  std::map<std::vector<int64_t>, Expr> ducks_;
  std::function<uint32_t()> where_;
};

}  // namespace braze::sym
