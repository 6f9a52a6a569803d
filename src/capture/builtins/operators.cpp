// The module operator.
#include <opcode.h>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Variable* do_truth(Translator& tr, Args& a) {
  return a.size() == 1 ? tr.boolean(tr.truth(a[0]), Ground::pure(a)) : nullptr;
}
Variable* do_concat(Translator& tr, Args& a) {
  if (a.size() != 2 || !a[0]->type()->tp_as_sequence || !a[0]->type()->tp_as_sequence->sq_concat) return nullptr;
  return tr.binary_op(NB_ADD, a[0], a[1]);
}

template <int op>
Variable* binary(Translator& tr, Args& a) {
  return a.size() == 2 ? tr.binary_op(op, a[0], a[1]) : nullptr;
}
template <int op>
Variable* comparison(Translator& tr, Args& a) {
  return a.size() == 2 ? tr.compare(op, a[0], a[1]) : nullptr;
}
template <Opcode op>
Variable* unary(Translator& tr, Args& a) {
  return a.size() == 1 ? tr.unary_op(op, a[0]) : nullptr;
}
Variable* do_op_getitem(Translator& tr, Args& a) { return a.size() == 2 ? tr.getitem(a[0], a[1]) : nullptr; }
Variable* do_op_setitem(Translator& tr, Args& a) {
  if (a.size() != 3) return nullptr;
  tr.setitem(a[0], a[1], a[2]);
  return tr.none();
}
Variable* do_op_delitem(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  tr.delitem(a[0], a[1]);
  return tr.none();
}
Variable* do_op_contains(Translator& tr, Args& a) {
  return a.size() == 2 ? tr.boolean(tr.contains(a[0], a[1]), Ground::pure(a)) : nullptr;
}
Variable* do_op_is(Translator& tr, Args& a) {
  return a.size() == 2 ? tr.boolean(tr.identical(a[0], a[1]), Ground::pure(a)) : nullptr;
}
Variable* do_op_is_not(Translator& tr, Args& a) {
  return a.size() == 2 ? tr.boolean(!tr.identical(a[0], a[1]), Ground::pure(a)) : nullptr;
}

}  // namespace

void register_operator_builtins() {
  const BuiltinRow rows[] = {{"add", binary<NB_ADD>},
                             {"and_", binary<NB_AND>},
                             {"floordiv", binary<NB_FLOOR_DIVIDE>},
                             {"lshift", binary<NB_LSHIFT>},
                             {"matmul", binary<NB_MATRIX_MULTIPLY>},
                             {"mul", binary<NB_MULTIPLY>},
                             {"mod", binary<NB_REMAINDER>},
                             {"or_", binary<NB_OR>},
                             {"pow", binary<NB_POWER>},
                             {"rshift", binary<NB_RSHIFT>},
                             {"sub", binary<NB_SUBTRACT>},
                             {"truediv", binary<NB_TRUE_DIVIDE>},
                             {"xor", binary<NB_XOR>},
                             {"iadd", binary<NB_INPLACE_ADD>},
                             {"iand", binary<NB_INPLACE_AND>},
                             {"imul", binary<NB_INPLACE_MULTIPLY>},
                             {"ior", binary<NB_INPLACE_OR>},
                             {"isub", binary<NB_INPLACE_SUBTRACT>},
                             {"itruediv", binary<NB_INPLACE_TRUE_DIVIDE>},
                             {"concat", do_concat},
                             {"lt", comparison<Py_LT>},
                             {"le", comparison<Py_LE>},
                             {"eq", comparison<Py_EQ>},
                             {"ne", comparison<Py_NE>},
                             {"gt", comparison<Py_GT>},
                             {"ge", comparison<Py_GE>},
                             {"neg", unary<Opcode::UnaryNegative>},
                             {"pos", unary<Opcode::UnaryPositive>},
                             {"invert", unary<Opcode::UnaryInvert>},
                             {"inv", unary<Opcode::UnaryInvert>},
                             {"not_", unary<Opcode::UnaryNot>},
                             {"truth", do_truth},
                             {"getitem", do_op_getitem},
                             {"setitem", do_op_setitem},
                             {"delitem", do_op_delitem},
                             {"contains", do_op_contains},
                             {"is_", do_op_is},
                             {"is_not", do_op_is_not}};
  for (const BuiltinRow& r : rows) register_builtin("_operator", r.name, r.handler);
  for (const BuiltinRow& r : rows) register_no_keywords("_operator", r.name);
}

}  // namespace braze::capture
