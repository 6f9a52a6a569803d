// torch.FloatTensor([...]), torch.LongTensor(2, 3), torch.Tensor(...), x.new(...): what torch.tensor and torch.empty
// make on the CPU, or on the device of x.
#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

struct Row {
  const char *name, *dtype;
};
constexpr Row kRows[] = {{"FloatTensor", "float32"},     {"DoubleTensor", "float64"}, {"HalfTensor", "float16"},
                         {"BFloat16Tensor", "bfloat16"}, {"ByteTensor", "uint8"},     {"CharTensor", "int8"},
                         {"ShortTensor", "int16"},       {"IntTensor", "int32"},      {"LongTensor", "int64"},
                         {"BoolTensor", "bool"}};

// Numbers in lists and tuples.
bool is_data(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (PyObject* c = constant_of(v)) return PyLong_CheckExact(c) || PyFloat_CheckExact(c) || PyBool_Check(c);
  if (v->type() != &PyList_Type && v->type() != &PyTuple_Type) return false;
  for (Variable* e : static_cast<SequenceVariable*>(v)->elements)
    if (!is_data(tr, e)) return false;
  return true;
}

bool is_size(Variable* v) {
  PyObject* c = constant_of(v);
  return v->is(Kind::Sym) ? v->type() == &PyLong_Type : c && PyLong_CheckExact(c);
}

// nullptr: not from these arguments.
Variable* make(Translator& tr, Args& a, Variable* dtype, Variable* device) {
  static PyObject *const tensor = imported("torch", "tensor"), *const empty = imported("torch", "empty");
  if (!a.kw.empty()) return nullptr;
  PyObject* callee = empty;
  Args args;
  if (a.size() == 1 && (a[0]->type() == &PyList_Type || a[0]->type() == &PyTuple_Type)) {
    if (!is_data(tr, a[0])) return nullptr;
    callee = tensor;
    args.pos.push_back(a[0]);
  } else if (a.size() == 1 && a[0]->type() == library().size) {
    args.pos.push_back(a[0]);
  } else {
    for (Variable* v : a.pos)
      if (!is_size(v)) return nullptr;
    args.pos.push_back(a.size() ? static_cast<Variable*>(tr.tuple(a.pos)) : tr.integer(0, Ground::pure(a)));
  }
  args.kw.emplace_back(tr.intern("dtype"), dtype);
  args.kw.emplace_back(tr.intern("device"), device);
  return tr.call(tr.global_object(callee, Ground::fixed()), args);
}

Variable* on_cpu(Translator& tr) { return tr.string("cpu", Ground::fixed()); }

template <size_t row>
Variable* of_type(Translator& tr, Args& a) {
  return make(tr, a, tr.from_python(Ref::borrow(imported("torch", kRows[row].dtype)), Ground::fixed()), on_cpu(tr));
}

// torch.Tensor, which is on the device of the default tensor type: that of the CPU alone is taken.
Variable* of_default(Translator& tr, Args& a) {
  static PyObject* const get_dtype = imported("torch", "get_default_dtype");
  PyObject* const device = pytorch::get(pytorch::Name::get_default_device);
  Variable* where = tr.force(tr.real.query_torch(device, Args{}));
  PyObject* name = constant_of(where);
  return name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "cpu") == 0
             ? make(tr, a, tr.real.query_torch(get_dtype, Args{}), on_cpu(tr))
             : nullptr;
}

Variable* of_tensor(Translator& tr, Args& a) {
  if (!a.size() || !a[0]->is(Kind::Tensor)) return nullptr;
  Args rest{{a.pos.begin() + 1, a.pos.end()}, a.kw};
  return make(tr, rest, tr.getattr(a[0], "dtype"), tr.getattr(a[0], "device"));
}

Variable* new_tensor(Translator& tr, Args& a) { return tr.call(tr.real.polyfill("new_tensor"), a); }

template <size_t... row>
void register_rows(std::index_sequence<row...>) {
  (register_builtin("torch", kRows[row].name, of_type<row>), ...);
}

}  // namespace

void register_legacy_constructors() {
  register_rows(std::make_index_sequence<std::size(kRows)>());
  register_builtin("torch", "Tensor", of_default);
  register_builtin("torch", "Tensor.new", of_tensor);
  register_builtin("torch", "Tensor.new_tensor", new_tensor);
}

}  // namespace braze::capture
