// Rules, each checked for every program (the message names the item and the rule):
//  1. Buffers have one stride per size. Ids are in range.
//  2. Every value of a nest is defined once, below `values`, and used after its definition: in the same stage (but a
//  Reduce's
//     result not in its own), or in a later stage if it is a Reduce or its stage has no axes.
//  3. Operands: as many as the row says, of the result's dtype, but: comparisons compare one dtype and yield Bool,
//  Where's condition is Bool,
//     Cast, Bitcast, IsNan, IsInf and Indirect take any; ArgMax and ArgMin yield I64; Any and All reduce Bool.
//  4. A Load's dtype is its buffer's; a stored value's dtype is its buffer's.
//  5. Axis variables are distinct loop variables (stages may share theirs). Index expressions use only variables of the
//  outer axes and of their stage, sizes, unbacked symbols and
//     Indirect symbols bound earlier in the stage or in an earlier stage without axes. A nest binds each once.
//  6. Stores go to Temp, Output and Local buffers. Temp, Output and Local buffers are written, by an earlier item or
//  earlier in the nest, before they are read.
//  7. A Local buffer belongs to one nest.
//  8. Extern calls' view references exist. Outputs are views of Output, Input or Constant buffers that were written.
#include <algorithm>

#include "base/check.h"
#include "loop/analysis.h"
#include "loop/loop.h"
#include "loop/text.h"

namespace braze::loop {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& p)
      : p_(p), arena_(*p.arena), written_(p.buffers.size(), 0), local_owner_(p.buffers.size(), UINT32_MAX) {}

  void run() {
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer& b = p_.buffers[BufferId(i)];
      where_ = "buffer %" + std::to_string(i);
      require(b.sizes.size() == b.strides.size(), "one stride per size");
      if (b.kind == BufferKind::Input || b.kind == BufferKind::Constant) written_[i] = 1;
    }
    for (const Writeback& w : p_.writebacks) {
      if (!w.in_place) continue;
      where_ = "a writeback in place";
      require(p_.buffers[w.from.buffer].kind == BufferKind::Temp, "its buffer is a Temp one");
      written_[w.from.buffer.index] = 1;
    }
    for (uint32_t i = 0; i < p_.items.size(); ++i) {
      item_ = i;
      if (auto* n = std::get_if<Nest>(&p_.items[i])) {
        where_ = "item " + std::to_string(i) + ", nest \"" + n->name + "\"";
        nest(*n);
      } else {
        const auto& c = std::get<ExternCall>(p_.items[i]);
        where_ = "item " + std::to_string(i) + ", extern \"" + c.name + "\"";
        call(c);
      }
    }
    nest_ = nullptr;
    for (const Output& o : p_.outputs) {
      where_ = "an output";
      if (o.kind != Output::Kind::View) continue;
      view(o.view);
      BufferKind k = p_.buffers[o.view.buffer].kind;
      require(k != BufferKind::Temp && k != BufferKind::Local,
              "an output is a view of an Output, Input or Constant buffer");
      require(written_[o.view.buffer.index], "an output's buffer is written");
    }
    for (const Writeback& w : p_.writebacks) {
      where_ = "a writeback";
      view(w.from);
      require(written_[w.from.buffer.index], "a writeback's buffer is written");
    }
  }

 private:
  void require(bool ok, const char* rule) {
    if (ok) return;
    std::string at = op_ ? ", value v" + (op_->result.valid() ? std::to_string(op_->result.index) : std::string("-")) +
                               " (" + text::lower(op_row(op_->code).name) + ")"
                         : "";
    throw InternalError("loop program: " + where_ + at + ": rule broken: " + rule +
                        (nest_ ? "\n" + print(p_, *nest_) : ""));
  }

  void view(const View& v) {
    require(v.buffer.valid() && v.buffer.index < p_.buffers.size(), "ids are in range");
    require(v.sizes.size() == v.strides.size(), "one stride per size");
  }

  void call(const ExternCall& c) {
    nest_ = nullptr;
    op_ = nullptr;
    // What it only writes to, it is given as it is.
    for (const View& v : c.outputs)
      if (v.buffer.valid() && v.buffer.index < written_.size()) written_[v.buffer.index] = 1;
    for (const View& v : c.views) {
      view(v);
      require(written_[v.buffer.index], "buffers are written before they are read");
    }
    auto ref = [&](ViewRef r) { require(!r.valid() || r.index < c.views.size(), "view references exist"); };
    for (const ExternArg& a : c.args) {
      if (auto* r = std::get_if<ViewRef>(&a)) ref(*r);
      if (auto* l = std::get_if<std::vector<ViewRef>>(&a))
        for (ViewRef r : *l) ref(r);
    }
    for (const View& v : c.outputs) {
      if (!v.buffer.valid()) continue;
      view(v);
      written_[v.buffer.index] = 1;
    }
  }

  struct Def {
    DType dtype;
    uint32_t stage = UINT32_MAX;
    bool reduce = false;
  };

  void nest(const Nest& n) {
    nest_ = &n;
    op_ = nullptr;
    std::vector<Def> defs(n.values);
    std::vector<Expr> outer, indirect, symbols;
    for (const Axis& a : n.outer) axis(a, outer);
    for (uint32_t s = 0; s < n.stages.size(); ++s) {
      const Stage& st = n.stages[s];
      std::vector<Expr> vars = outer;
      for (const Axis& a : st.axes) axis(a, vars);
      std::vector<Expr> bound = indirect;
      for (const LoopOp& op : st.ops) {
        op_ = &op;
        for (int i = 0; i < arity(op.code); ++i) {
          ValId v = op.args[static_cast<size_t>(i)];
          require(v.valid() && v.index < n.values && defs[v.index].stage != UINT32_MAX,
                  "values are defined before they are used");
          const Def& d = defs[v.index];
          if (d.stage == s)
            require(!d.reduce, "a Reduce's result is not used in its own stage");
          else
            require(d.reduce || n.stages[d.stage].axes.empty(),
                    "a later stage sees only Reduce results and values of stages without axes");
        }
        operands(op, defs);
        require(op.code != OpCode::Scan || st.axes.size() <= 1, "a stage with a Scan has one axis");
        if (op.code == OpCode::Load || op.code == OpCode::Store || op.code == OpCode::Index)
          index(op.index, vars, bound);
        if (op.code == OpCode::Load || op.code == OpCode::Store) element(op);
        if (op.code == OpCode::Indirect) {
          require(
              arena_.kind(op.index) == sym::Kind::Symbol && arena_.symbol_kind(op.index) == sym::SymbolKind::Indirect,
              "Indirect binds an Indirect symbol");
          require(std::ranges::find(symbols, op.index) == symbols.end(), "an Indirect symbol is bound once in a nest");
          symbols.push_back(op.index);
          bound.push_back(op.index);
        }
        bool has_result = op.code != OpCode::Store && op.code != OpCode::Indirect;
        require(op.result.valid() == has_result, "all operations but Store and Indirect have a result");
        if (has_result) {
          require(op.result.index < n.values, "values are below the nest's count");
          require(defs[op.result.index].stage == UINT32_MAX, "values are defined once");
          defs[op.result.index] = {op.dtype, s, op.code == OpCode::Reduce};
        }
      }
      op_ = nullptr;
      if (st.axes.empty()) indirect = std::move(bound);
    }
  }

  void axis(const Axis& a, std::vector<Expr>& vars) {
    require(arena_.kind(a.var) == sym::Kind::Symbol && arena_.symbol_kind(a.var) == sym::SymbolKind::LoopVar,
            "axis variables are loop variables");
    for (Expr v : vars) require(v != a.var, "axis variables are distinct");
    vars.push_back(a.var);
  }

  void index(Expr e, const std::vector<Expr>& vars, const std::vector<Expr>& indirect) {
    scratch_.clear();
    arena_.collect_symbols(e, scratch_);
    for (Expr s : scratch_) {
      auto kind = arena_.symbol_kind(s);
      auto in = [&](const std::vector<Expr>& v) {
        for (Expr x : v)
          if (x == s) return true;
        return false;
      };
      if (kind == sym::SymbolKind::LoopVar)
        require(in(vars), "index expressions use variables of the outer axes and of their stage");
      if (kind == sym::SymbolKind::Indirect) require(in(indirect), "Indirect symbols are bound before they are used");
    }
  }

  void element(const LoopOp& op) {
    require(op.buffer.valid() && op.buffer.index < p_.buffers.size(), "ids are in range");
    const Buffer& b = p_.buffers[op.buffer];
    if (b.kind == BufferKind::Local) {
      uint32_t& owner = local_owner_[op.buffer.index];
      require(owner == UINT32_MAX || owner == item_, "a Local buffer belongs to one nest");
      owner = item_;
    }
    if (op.code == OpCode::Load) {
      require(written_[op.buffer.index], "buffers are written before they are read");
    } else {
      require(b.kind != BufferKind::Input && b.kind != BufferKind::Constant,
              "stores go to Temp, Output and Local buffers");
      written_[op.buffer.index] = 1;
    }
  }

  void operands(const LoopOp& op, const std::vector<Def>& defs) {
    auto type = [&](size_t i) { return defs[op.args[i].index].dtype; };
    const bool moves = op.code == OpCode::Load || op.code == OpCode::Store || op.code == OpCode::Cast ||
                       op.code == OpCode::Bitcast || op.code == OpCode::Where;
    bool bytes = float8(op.dtype);
    for (size_t i = 0; i < static_cast<size_t>(arity(op.code)); ++i) bytes = bytes || float8(type(i));
    require((moves && !op.atomic_add) || !bytes, "floats of a byte have no arithmetic");
    switch (op.code) {
      case OpCode::Load: require(op.dtype == p_.buffers[op.buffer].dtype, "a Load has its buffer's dtype"); return;
      case OpCode::Store:
        require(type(0) == p_.buffers[op.buffer].dtype, "a stored value has its buffer's dtype");
        return;
      case OpCode::Const:
      case OpCode::Cast: return;
      case OpCode::Index: require(is_integral(op.dtype), "Index yields an integer"); return;
      case OpCode::Indirect: require(is_integral(type(0)), "Indirect takes an integer"); return;
      case OpCode::Bitcast: require(size_of(type(0)) == size_of(op.dtype), "Bitcast keeps the size"); return;
      case OpCode::IsNan:
      case OpCode::IsInf: require(op.dtype == DType::Bool, "tests yield Bool"); return;
      case OpCode::Where:
        require(type(0) == DType::Bool, "Where's condition is Bool");
        require(type(1) == op.dtype && type(2) == op.dtype, "operands have the result's dtype");
        return;
      case OpCode::Reduce:
        if (is_index(op.reduce))
          require(op.dtype == DType::I64, "ArgMax and ArgMin yield I64");
        else
          require(type(0) == op.dtype, "operands have the result's dtype");
        if (is_choice(op.reduce)) require(op.dtype == DType::Bool, "Any and All reduce Bool");
        require(op.reduce != ReduceKind::LogAdd, "LogAdd is a Scan's");
        if (is_exponent(op.reduce)) require(is_floating(op.dtype), "a sum of exponentials is of floats");
        return;
      case OpCode::Scan:
        require(type(0) == op.dtype, "operands have the result's dtype");
        require(reduce_row(op.reduce).family == ReduceFamily::Fold, "a Scan folds");
        require(op.dtype != DType::Bool, "a Scan is of numbers");
        require(is_floating(op.dtype) || op.reduce != ReduceKind::LogAdd, "LogAdd is of floats");
        return;
      default: break;
    }
    if (is_comparison(op.code)) {
      require(op.dtype == DType::Bool && type(0) == type(1), "comparisons compare one dtype and yield Bool");
      return;
    }
    for (int i = 0; i < arity(op.code); ++i)
      require(type(static_cast<size_t>(i)) == op.dtype, "operands have the result's dtype");
  }

  const Program& p_;
  sym::ExprArena& arena_;
  std::vector<char> written_;
  std::vector<uint32_t> local_owner_;
  std::vector<Expr> scratch_;
  std::string where_;
  uint32_t item_ = 0;
  const Nest* nest_ = nullptr;
  const LoopOp* op_ = nullptr;
};

}  // namespace

void verify(const Program& p) { Verifier(p).run(); }

}  // namespace braze::loop
