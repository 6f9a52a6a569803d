#include <opcode.h>

#include "capture/eval/operands.h"
#include "capture/vars/tensor_float.h"

namespace braze::capture {

Variable* Translator::unary_op(Opcode op, Variable* v) {
  if (op == Opcode::UnaryNegative)
    if (Variable* d = defer_negation(v)) return d;
  if (op == Opcode::UnaryNot) return boolean(!truth(v), Ground::pure(v));
  v = force(v);
  if (v->is(Kind::Float)) {
    if (op == Opcode::UnaryPositive) return v;
    if (op == Opcode::UnaryNegative) return float_arithmetic(*this, NB_MULTIPLY, v, constant(keep(Ref::steal(PyFloat_FromDouble(-1.0))), Ground::pure(v)));
  }
  const char* method = op == Opcode::UnaryNegative ? "__neg__" : op == Opcode::UnaryPositive ? "__pos__" : "__invert__";
  const char* name = op == Opcode::UnaryNegative ? "neg" : op == Opcode::UnaryPositive ? "pos" : "invert";
  if (v->is(Kind::Array)) return array_operator(*this, name, {v});
  if (v->is(Kind::Tensor)) return tensor_operator(method), call_torch(operator_function(name), Args{{v}, {}});
  if (v->is(Kind::Sym) && (op == Opcode::UnaryInvert || !small_int(v))) v = specialised(v);
  if (is_plain(v) && !user_number(v)) {
    Ref r = Ref::steal(op == Opcode::UnaryNegative ? PyNumber_Negative(plain(v)) : op == Opcode::UnaryPositive ? PyNumber_Positive(plain(v)) : PyNumber_Invert(plain(v)));
    if (!r) raise_current();
    return from_python(std::move(r), Ground::pure(v));
  }
  SourceId at;
  if (PyObject* f = lookup_on_type(v->type(), intern(method), &at)) return call(bind_descriptor(f, at, v, v->type(), intern(method)), Args{});
  raise(PyExc_TypeError, std::string("bad operand type for unary ") + (op == Opcode::UnaryNegative ? "-" : op == Opcode::UnaryPositive ? "+" : "~") + ": '" + v->type()->tp_name + "'");
}

}  // namespace braze::capture
