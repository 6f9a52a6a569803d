#include "capture/vars/tensor_number.h"

#include <optional>

#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_float.h"

namespace braze::capture {
PyObject* tensor_method(const char* name) {
  return native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(library().tensor), name);
}

namespace {

enum class NumberKind : uint8_t { Bool, Int, Float, Complex };

NumberKind kind_of(Translator& tr, TensorVariable* t) {
  Ref dtype = Ref::steal(native::of_tensor(t->value(tr), "dtype"));
  Ref floating = dtype ? Ref::steal(native::attr(Ground::made(), dtype.get(), "is_floating_point")) : Ref();
  Ref complex = dtype ? Ref::steal(native::attr(Ground::made(), dtype.get(), "is_complex")) : Ref();
  static PyObject* boolean = native::attr(Ground::fixed(), library().torch, "bool");
  if (!floating || !complex) tr.raise_current();
  if (complex.get() == Py_True) return NumberKind::Complex;
  if (floating.get() == Py_True) return NumberKind::Float;
  return dtype.get() == boolean ? NumberKind::Bool : NumberKind::Int;
}

int64_t rank_of(Translator& tr, TensorVariable* t) {
  Ref n = Ref::steal(native::of_tensor(t->value(tr), "ndim"));
  if (!n) tr.raise_current();
  return PyLong_AsLong(n.get());
}

bool may_hold_one(Translator& tr, TensorVariable* t) {
  Ref shape = Ref::steal(native::of_tensor(t->value(tr), "shape"));
  if (!shape) tr.raise_current();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape.get()); ++i)
    if (PyObject* n = PyTuple_GET_ITEM(shape.get(), i); PyLong_Check(n) && PyLong_AsLong(n) != 1) return false;
  return true;
}

// The text of `lambda: "..."`, or of a string.
std::string text_of(Translator& tr, Variable* message) {
  if (!message) return {};
  message = tr.force(message);
  if (is_none(message)) return {};
  PyObject* s = constant_of(message);
  if (!s && message->is(Kind::Function)) {
    // Only what returns a constant: what a text says of numbers that only the run knows cannot be asked now.
    const Bytecode& code = decode(message->as<FunctionVariable>()->code_object());
    const auto& all = code.instructions;
    size_t i = 0;
    while (i < all.size() && (all[i].op == Opcode::Nop || all[i].op == Opcode::Resume)) ++i;
    bool constant = i + 1 < all.size() && all[i].op == Opcode::LoadConst && all[i + 1].op == Opcode::ReturnValue;
    if (i < all.size() && (constant || all[i].op == Opcode::ReturnConst)) s = code.constant(all[i].arg);
  }
  const char* text = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : nullptr;
  PyErr_Clear();
  return text ? text : "";
}

}  // namespace

Variable* number_of(Translator& tr, TensorVariable* t, PyTypeObject* as) {
  if (tr.in_score_function) tr.unsupported(Reason::ScalarFromTensor, "in a score_mod or mask_mod");
  if (Ref known = Ref::steal(tr.tracer().known_number(t->value(tr)))) {
    PyObject* c = reinterpret_cast<PyObject*>(as);
    if (as == &PyLong_Type || as == &PyFloat_Type) known = Ref::steal(PyObject_CallOneArg(c, known.get()));
    if (!known) tr.raise_current();
    return tr.from_python(std::move(known), Ground::pure(t));
  }
  if (!tr.may_be_unbacked()) return nullptr;
  if (!may_hold_one(tr, t)) tr.unsupported(Reason::RaisedException, "a number of a tensor that does not hold one");
  NumberKind kind = kind_of(tr, t);
  if (kind == NumberKind::Complex || as == &PyComplex_Type) return nullptr;
  if (as == &PyFloat_Type || (kind == NumberKind::Float && as != &PyLong_Type)) return float_of(tr, t);
  static PyObject *item = tensor_method("item"), *to_int = tensor_method("long");
  Variable* from = t;
  if (kind == NumberKind::Float) {
    static PyObject* integer = native::builtin("int");
    return float_function(tr, integer, Args{{float_of(tr, t)}, {}});
  }
  // PyTorch hands out symbolic ints to Python code, but no bools.
  if (kind == NumberKind::Bool) from = tr.real.call_torch(to_int, Args{{t}, {}});
  Variable* number = tr.real.call_torch(item, Args{{from}, {}});
  return kind == NumberKind::Bool && as != &PyLong_Type ? tr.compare(Py_NE, number, tr.integer(0, Ground::fixed()))
                                                        : number;
}

Variable* list_of_numbers(Translator& tr, TensorVariable* t) {
  if (kind_of(tr, t) == NumberKind::Complex) return nullptr;
  if (rank_of(tr, t) == 0) return number_of(tr, t, nullptr);
  std::vector<Variable*> out;
  for (int64_t i = 0, n = tr.len(t); i < n; ++i) {  // one by one: of literals these are known
    out.push_back(list_of_numbers(tr, tr.force(t->getitem(tr, tr.integer(i, Ground::pure(t))))->as<TensorVariable>()));
    if (!out.back()) return nullptr;
  }
  return tr.list(std::move(out));
}

// Of an index: a slice, or a tensor that stands for an int. The same where there is nothing to replace.
static Variable* index_with_numbers(Translator& tr, Variable* index) {
  index = tr.force(index);
  if (index->is(Kind::Tensor)) {
    auto* t = index->as<TensorVariable>();
    if (rank_of(tr, t) != 0 || kind_of(tr, t) != NumberKind::Int) return index;
    static PyObject* byte = native::attr(Ground::fixed(), library().torch, "uint8");
    Ref dtype = Ref::steal(native::attr(Ground::made(), t->value(tr), "dtype"));
    Variable* n = dtype.get() == byte ? nullptr : number_of(tr, t, &PyLong_Type);  // bytes are masks
    return n ? n : index;
  }
  if (!index->is(Kind::Slice)) return index;
  auto* s = index->as<SliceVariable>();
  Variable* parts[3];
  bool any = false;
  for (int i = 0; i < 3; ++i) {
    parts[i] = tr.force(s->parts[i]);
    if (!parts[i]->is(Kind::Tensor)) continue;
    if (Variable* n = number_of(tr, parts[i]->as<TensorVariable>(), &PyLong_Type)) parts[i] = n, any = true;
  }
  return any ? tr.make<SliceVariable>(parts[0], parts[1], parts[2]) : index;
}

// A key for a tensor's [] with integer tensors of no dimension, and tensors in its slices, replaced by their values.
static Variable* with_numbers(Translator& tr, Variable* key) {
  if (!tr.may_be_unbacked()) return key;
  key = tr.force(key);
  if (!key->is(Kind::Tuple)) return index_with_numbers(tr, key);
  std::vector<Variable*> items;
  bool any = false;
  for (Variable* e : key->as<TupleVariable>()->elements) {
    items.push_back(index_with_numbers(tr, e));
    any |= items.back() != tr.force(e);
  }
  return any ? tr.tuple(std::move(items)) : key;
}

// t[key] with integers in the key that only the run knows, as a view; nullptr: there is none, or it is of another kind.
static Variable* select_by_numbers(Translator& tr, TensorVariable* t, Variable* key) {
  key = tr.force(key);
  auto unknown = [&](Variable* v) { return only_run_knows(tr, v) && v->type() == &PyLong_Type; };
  std::vector<Variable*> parts{key};
  if (key->is(Kind::Tuple)) parts = key->as<TupleVariable>()->elements;
  bool any = false;
  int64_t consumed = 0;
  for (Variable*& p : parts) {
    p = tr.force(p);
    any = any || unknown(p);
    PyObject* c = constant_of(p);
    bool number = p->is(Kind::Sym) || (c && PyLong_CheckExact(c));
    if (!number && !p->is(Kind::Slice) && !(c && (c == Py_None || c == Py_Ellipsis || PySlice_Check(c))))
      return nullptr;
    consumed += c != Py_None && c != Py_Ellipsis;
  }
  if (!any) return nullptr;
  static PyObject *select = tensor_method("select"), *getitem = tensor_method("__getitem__");
  static PyObject* whole = PySlice_New(nullptr, nullptr, nullptr);
  Variable* out = t;
  int64_t dim = 0, skipped = rank_of(tr, t) - consumed;
  for (Variable* p : parts) {
    if (constant_of(p) == Py_Ellipsis) {
      dim += skipped;
    } else if (unknown(p)) {
      out = tr.force(tr.real.call_torch(select, Args{{out, tr.integer(dim, Ground::pure(t, key)), p}, {}}));
    } else {
      std::vector<Variable*> one(static_cast<size_t>(dim), tr.from_python(Ref::borrow(whole), Ground::pure(t, key)));
      one.push_back(p);
      out = tr.force(tr.real.call_torch(getitem, Args{{out, tr.tuple(std::move(one))}, {}}));
      PyObject* c = constant_of(p);
      dim += !(p->is(Kind::Sym) || (c && PyLong_CheckExact(c)));
    }
  }
  return out;
}

Variable* part_by_numbers(Translator& tr, TensorVariable* t, Variable*& key) {
  // The program does not see them, so that they are no reason to end a graph that can hold them.
  std::optional<OpenNumbers> open;
  if (!tr.view().torch_level && !tr.view().fixed_sizes && !tr.host.in_callback()) open.emplace(tr);
  key = with_numbers(tr, key);
  return tr.may_be_unbacked() ? select_by_numbers(tr, t, key) : nullptr;
}

bool assume(Translator& tr, Variable* condition, const char* exception, Variable* message) {
  condition = tr.force(condition);
  if (!only_run_knows(tr, condition)) return false;
  std::string text = text_of(tr, message);
  tr.mutate();
  tr.tracer().assume(condition->as<SymVariable>()->value.get(), exception, text);
  return true;
}

}  // namespace braze::capture
