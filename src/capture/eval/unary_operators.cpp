#include <opcode.h>

#include "capture/eval/checks.h"
#include "capture/eval/operands.h"
#include "capture/vars/tensor_float.h"

namespace braze::capture {

Variable* Protocols::unary_op(Opcode op, Variable* v) {
  if (op == Opcode::UnaryNegative)
    if (Variable* d = tr_.floats.defer_negation(v)) return d;
  if (op == Opcode::UnaryNot) {
    bool open = only_run_knows(tr_, v) && v->type() == &PyBool_Type;
    return open ? negated(tr_, v) : tr_.boolean(!truth(v), Ground::pure(v));
  }
  v = tr_.force(v);
  if (v->is(Kind::Float)) {
    if (op == Opcode::UnaryPositive) return v;
    if (op == Opcode::UnaryNegative)
      return float_arithmetic(tr_, NB_MULTIPLY, v,
                              tr_.constant(tr_.keep(Ref::steal(PyFloat_FromDouble(-1.0))), Ground::pure(v)));
  }
  const char* method = op == Opcode::UnaryNegative ? "__neg__" : op == Opcode::UnaryPositive ? "__pos__" : "__invert__";
  const char* name = op == Opcode::UnaryNegative ? "neg" : op == Opcode::UnaryPositive ? "pos" : "invert";
  if (v->is(Kind::Array)) return array_operator(tr_, name, {v});
  if (v->is(Kind::Tensor))
    return tr_.attributes.tensor_operator(method, {v}), tr_.real.call_torch(operator_function(name), Args{{v}, {}});
  if (v->is(Kind::Sym) && (op == Opcode::UnaryInvert || !small_int(v))) v = tr_.real.specialised(v);
  if (is_plain(v) && !user_number(v) && !has_own(tr_, v->type(), method)) {
    Ref r = Ref::steal(op == Opcode::UnaryNegative   ? PyNumber_Negative(plain(v))
                       : op == Opcode::UnaryPositive ? PyNumber_Positive(plain(v))
                                                     : PyNumber_Invert(plain(v)));
    if (!r) tr_.raise_current();
    return tr_.from_python(std::move(r), Ground::pure(v));
  }
  SourceId at;
  if (PyObject* f = tr_.attributes.lookup_on_type(v->type(), tr_.intern(method), &at))
    return call(tr_.attributes.bind_descriptor(f, at, v, v->type(), tr_.intern(method)), Args{});
  tr_.raise(PyExc_TypeError, std::string("bad operand type for unary ") +
                                 (op == Opcode::UnaryNegative   ? "-"
                                  : op == Opcode::UnaryPositive ? "+"
                                                                : "~") +
                                 ": '" + tr_.name_of(v->type()) + "'");
}

}  // namespace braze::capture
