// Branches on what only the run knows of which one side does nothing but raise.
#include <set>

#include "capture/eval/operands.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {
namespace {

// Whether all ways on from an instruction end in an exception that this instruction's arm raises: none returns, yields
// or goes back.
bool only_raises(const Bytecode& code, int from) {
  std::vector<int> todo{from};
  std::set<int> seen;
  bool raises = false;
  while (!todo.empty()) {
    int at = todo.back();
    todo.pop_back();
    if (at < from || static_cast<size_t>(at) >= code.instructions.size()) return false;
    if (!seen.insert(at).second) continue;
    const Instruction& in = code.instructions[static_cast<size_t>(at)];
    using enum Opcode;
    if (in.op == ReturnValue || in.op == ReturnConst || in.op == YieldValue || in.op == Reraise) return false;
    if (in.op == RaiseVarargs) {
      raises = true;
      continue;
    }
    if (in.target >= 0) todo.push_back(in.target);
    if (in.op != Jump && in.op != JumpBackward) todo.push_back(at + 1);
  }
  return raises;
}

// Of a conditional jump: which of its sides does nothing but raise.
enum class Raises : uint8_t { Neither, Next, Target };
Raises raising_side(const Bytecode& code, int next, int target) {
  const bool falls = only_raises(code, next), jumps = target > next && only_raises(code, target);
  return falls == jumps ? Raises::Neither : falls ? Raises::Next : Raises::Target;
}

}  // namespace

// The exception that a straight run of instructions raises, out of the capture, and the text of it if that is constant:
// what a graph for another backend can raise by itself. nullptr: it is not known.
static PyObject* raised_from(Translator& tr, Frame& f, int at, PyObject** text) {
  const auto& all = f.code->instructions;
  for (const Frame* p = f.parent; p; p = p->parent)
    if (p->code->instructions[static_cast<size_t>(p->ip)].handler >= 0) return nullptr;
  PyObject* cls = nullptr;
  for (size_t i = static_cast<size_t>(at); i < all.size(); ++i) {
    const Instruction& in = all[i];
    using enum Opcode;
    if (in.handler >= 0 || in.target >= 0) return nullptr;
    if (in.op == RaiseVarargs) return in.arg == 1 ? cls : nullptr;
    if (cls || (in.op != LoadGlobal && in.op != LoadAssertionError)) continue;
    PyObject* found = PyExc_AssertionError;
    if (in.op == LoadGlobal) {
      Variable* v = tr.load_global(f, f.code->name(in.arg));
      found = v ? tr.force(v)->as_constant() : nullptr;
    }
    if (!found || !PyExceptionClass_Check(found)) return nullptr;
    cls = found;
    size_t then = i + 2;
    while (then < all.size() && all[then].op == Nop) ++then;
    if (then < all.size() && all[i + 1].op == LoadConst && all[then].op == Call &&
        PyUnicode_Check(f.code->constant(all[i + 1].arg)))
      *text = f.code->constant(all[i + 1].arg);
  }
  return nullptr;
}

bool awaits_check(Translator& tr, const Frame& f) {
  if (!tr.view().checks || tr.view().fixed_sizes) return false;
  for (const Frame* p = &f; p; p = p->parent) {
    const auto& all = p->code->instructions;
    size_t at = static_cast<size_t>(p->ip) + 1;
    for (; at < all.size(); ++at) {
      const Instruction& in = all[at];
      using enum Opcode;
      if (in.op == Nop || in.op == UnaryNot || in.op == CompareOp) continue;
      if (in.op == LoadConst && at + 1 < all.size() && all[at + 1].op == CompareOp) continue;
      if (in.op == PopJumpIfTrue || in.op == PopJumpIfFalse)
        return raising_side(*p->code, static_cast<int>(at) + 1, in.target) != Raises::Neither;
      break;
    }
    if (at >= all.size() || all[at].op != Opcode::ReturnValue || p->is_generator || !p->resumable) return false;
  }
  return false;
}

Variable* negated(Translator& tr, Variable* truth) {
  Variable* number =
      tr.from_python(Ref::steal(tr.tracer().as_integer(truth->as<SymVariable>()->value.get())), Ground::pure(truth));
  return tr.force(tr.compare(Py_EQ, number, tr.integer(0, Ground::fixed())));
}

// The run checks it, and the other side is taken.
bool check_in_run(Translator& tr, Frame& f, const Instruction& ins, int& next) {
  Variable* condition = tr.force(f.top());
  if (!only_run_knows(tr, condition) && !condition->is(Kind::Tensor) && !condition->is(Kind::Float)) return false;
  const Raises side = raising_side(*f.code, next, ins.target);
  if (side == Raises::Neither) return false;
  const bool falls = side == Raises::Next;
  bool wanted = (ins.op == Opcode::PopJumpIfTrue) == falls;  // the truth value that does not raise
  // A run that fails is made again by the uncompiled code, which raises what it raises; another backend's graph must
  // raise by itself.
  PyObject *text = nullptr,
           *raised = tr.view().torch_level ? raised_from(tr, f, falls ? next : ins.target, &text) : PyExc_RuntimeError;
  if (!raised) return false;
  if (condition->is(Kind::Tensor)) {
    Ref known = Ref::steal(tr.tracer().known_number(condition->as<TensorVariable>()->value(tr)));
    Ref count = Ref::steal(PyObject_CallMethod(condition->as<TensorVariable>()->value(tr), "numel", nullptr));
    if (!count) tr.raise_current();
    if (known || !PyLong_CheckExact(count.get()) || PyLong_AsLong(count.get()) != 1) return false;
    condition = number_of(tr, condition->as<TensorVariable>(), nullptr);
    if (!condition) return false;
    condition = tr.force(condition);
  }
  if (condition->type() != &PyBool_Type)
    condition = tr.force(tr.compare(Py_NE, condition, tr.integer(0, Ground::fixed())));
  if (!only_run_knows(tr, condition)) return false;
  if (!wanted) condition = negated(tr, condition);
  UserLine at = tr.line();
  std::string where = "the check in line " + std::to_string(at.line) + " failed: " + source_text(at);
  Variable* message = text ? tr.constant(text, Ground::code()) : tr.string(where, Ground::code());
  if (!assume(tr, condition, reinterpret_cast<PyTypeObject*>(raised)->tp_name, message)) return false;
  if (falls) next = ins.target;
  return true;
}

}  // namespace braze::capture
