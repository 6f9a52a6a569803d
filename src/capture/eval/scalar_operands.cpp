#include "capture/eval/scalar_operands.h"

#include <opcode.h>

#include <algorithm>
#include <utility>

#include "capture/eval/library_objects.h"
#include "capture/eval/size_floats.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_float.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

constexpr int kAnywhere = -2;

// Where an operator takes a number. `name`: also of its form in place, with a trailing underscore.
struct ScalarParameter {
  const char* name;
  int position;  // of the number among the arguments; -1: by keyword only;
                 // kAnywhere: the polyfill takes a tensor for any number
  const char* keyword;
  const char* polyfill;  // for tensors in its place (with the underscore for the form in place); nullptr: the operator
                         // takes them itself
  int op = -1;           // Python's operator, if it is one
};
const ScalarParameter kParameters[] = {
    {"add", 1, "other", nullptr, NB_ADD},
    {"sub", 1, "other", nullptr, NB_SUBTRACT},
    {"mul", 1, "other", nullptr, NB_MULTIPLY},
    {"div", 1, "other", nullptr, NB_TRUE_DIVIDE},
    {"subtract", 1, "other", nullptr, NB_SUBTRACT},
    {"multiply", 1, "other", nullptr, NB_MULTIPLY},
    {"divide", 1, "other", nullptr, NB_TRUE_DIVIDE},
    {"true_divide", 1, "other", nullptr, NB_TRUE_DIVIDE},
    {"clamp", kAnywhere, "", "clamp"},
    {"clip", kAnywhere, "", "clamp"},
    {"clamp_min", kAnywhere, "", "clamp_min"},
    {"clamp_max", kAnywhere, "", "clamp_max"},
    {"pow", kAnywhere, "", "pow_number"},
    {"fill", kAnywhere, "", "fill"},
    {"masked_fill", kAnywhere, "", "masked_fill"},
    {"lerp", kAnywhere, "", "lerp"},
    {"where", kAnywhere, "", "where"},
    {"full", kAnywhere, "", "full"},
    {"full_like", kAnywhere, "", "full_like"},
    {"new_full", kAnywhere, "", "new_full"},
    {"tensor", kAnywhere, "", "tensor_of"},
    {"scalar_tensor", kAnywhere, "", "tensor_of"},
    {"add", -1, "alpha", "add_scaled"},
    {"sub", -1, "alpha", "sub_scaled"},
    {"addcmul", -1, "value", "addcmul"},
    {"addcdiv", -1, "value", "addcdiv"},
    {pytorch::row(pytorch::Name::foreach_add).path, 1, "scalar", nullptr},
    {pytorch::row(pytorch::Name::foreach_sub).path, 1, "scalar", nullptr},
    {pytorch::row(pytorch::Name::foreach_mul).path, 1, "scalar", nullptr},
    {pytorch::row(pytorch::Name::foreach_div).path, 1, "scalar", nullptr},
    {pytorch::row(pytorch::Name::foreach_add).path, -1, "alpha", "foreach_add_scaled"},
    {pytorch::row(pytorch::Name::foreach_sub).path, -1, "alpha", "foreach_sub_scaled"},
    {pytorch::row(pytorch::Name::foreach_addcmul).path, 3, "value", "foreach_addcmul"},
    {pytorch::row(pytorch::Name::foreach_addcdiv).path, 3, "value", "foreach_addcdiv"},
};

struct Entry {
  const ScalarParameter* row;
  bool in_place;
};

const std::unordered_multimap<PyObject*, Entry>& entries() {
  static const auto* table = [] {
    auto* made = new std::unordered_multimap<PyObject*, Entry>;
    for (const ScalarParameter& row : kParameters)
      for (bool in_place : {false, true}) {
        std::string name = std::string(row.name) + (in_place ? "_" : "");
        Ref interned = Ref::steal(PyUnicode_InternFromString(name.c_str()));
        if (PyObject* method = native::type_attr(Ground::fixed(), library().tensor, interned.get()))
          made->emplace(method, Entry{&row, in_place});
        if (PyObject* function = native::attr(Ground::fixed(), library().torch, interned.get()))
          made->emplace(function, Entry{&row, in_place});
        else
          PyErr_Clear();
      }
    return made;
  }();
  return *table;
}

PyObject* dtype_named(const char* name) { return native::attr(Ground::fixed(), library().torch, name); }

// The tensors among forced operands, and in lists of them; false: something else is there.
bool collect(Translator& tr, Variable* v, std::vector<TensorVariable*>& out) {
  v = tr.force(v);
  if (v->is(Kind::Tensor)) {
    out.push_back(v->as<TensorVariable>());
    return true;
  }
  if (!v->is(Kind::List) && !v->is(Kind::Tuple)) return false;
  for (Variable* e : static_cast<SequenceVariable*>(v)->elements)
    if (!tr.force(e)->is(Kind::Tensor))
      return false;
    else
      out.push_back(tr.force(e)->as<TensorVariable>());
  return true;
}

// All of one real floating dtype: nothing is promoted.
bool of_one_float_dtype(Translator& tr, const std::vector<TensorVariable*>& tensors) {
  static PyObject* const floats[] = {dtype_named("float32"), dtype_named("float64"), dtype_named("bfloat16"),
                                     dtype_named("float16")};
  PyObject* first = nullptr;
  for (TensorVariable* t : tensors) {
    Ref dtype = Ref::steal(native::of_tensor(t->value(tr), "dtype"));
    if (!dtype) tr.raise_current();
    if (std::find(std::begin(floats), std::end(floats), dtype.get()) == std::end(floats) ||
        (first && dtype.get() != first))
      return false;
    first = dtype.get();  // dtypes live for good
  }
  return first;
}

int64_t rank(Translator& tr, TensorVariable* t) {
  Ref n = Ref::steal(native::of_tensor(t->value(tr), "ndim"));
  if (!n) tr.raise_current();
  return PyLong_AsLong(n.get());
}

// A list of tensors that are numbers, one for each of a list of tensors.
bool of_numbers(Translator& tr, Variable* v) {
  std::vector<TensorVariable*> tensors;
  if (!collect(tr, v, tensors) || tensors.empty()) return false;
  for (TensorVariable* t : tensors)
    if (rank(tr, t) != 0) return false;
  return true;
}

// v with operands in place of open numbers, in lists and tuples too.
Variable* with_operands(Translator& tr, Variable* v, bool& any) {
  if (tr.floats.is_open_float(v)) {
    Variable* operand = tr.floats.varying_number(v);
    any |= operand != nullptr;
    return operand ? operand : v;
  }
  if (!v->is(Kind::List) && !(v->is(Kind::Tuple) && v->type() == &PyTuple_Type)) return v;
  std::vector<Variable*> items;
  bool inside = false;
  for (Variable* e : static_cast<SequenceVariable*>(v)->elements) items.push_back(with_operands(tr, e, inside));
  if (!inside) return v;
  any = true;
  return v->is(Kind::List) ? static_cast<Variable*>(tr.list(std::move(items))) : tr.tuple(std::move(items));
}

Variable* try_call(Translator& tr, PyObject* callable, const Args& args, const Entry& entry) {
  const ScalarParameter& row = *entry.row;
  Args made = args;
  if (row.position == kAnywhere) {
    bool any = false;
    for (Variable*& v : made.pos) v = with_operands(tr, v, any);
    for (auto& [name, v] : made.kw) v = with_operands(tr, v, any);
    if (!any) return nullptr;
    return tr.call(tr.real.polyfill((std::string(row.polyfill) + (entry.in_place ? "_" : "")).c_str()), made);
  }
  Variable** scalar = nullptr;
  if (row.position >= 0 && static_cast<int>(made.pos.size()) == row.position + 1 && made.kw.empty())
    scalar = &made.pos.back();
  if (made.kw.size() == 1 && PyUnicode_CompareWithASCIIString(made.kw[0].first, row.keyword) == 0)
    scalar = &made.kw[0].second;
  if (!scalar) return nullptr;
  if (row.op >= 0 && tr.floats.is_open_float(*scalar))
    return tr.floats.varying_operand(entry.in_place ? row.op + NB_INPLACE_ADD : row.op, tr.force(made.pos[0]), *scalar);
  bool is_tensor = !tr.floats.is_open_float(*scalar) && row.polyfill &&
                   (tr.force(*scalar)->is(Kind::Tensor) || (row.position > 0 && of_numbers(tr, *scalar)));
  if (!is_tensor && !tr.floats.is_open_float(*scalar)) return nullptr;
  std::vector<TensorVariable*> tensors;
  for (Variable*& v : made.pos)
    if (&v != scalar && !collect(tr, v, tensors)) return nullptr;
  if (tensors.empty() || !of_one_float_dtype(tr, tensors)) return nullptr;
  if (is_tensor && tr.force(*scalar)->is(Kind::Tensor)) {
    bool list = !tr.force(made.pos[0])->is(Kind::Tensor);
    if (int64_t n = rank(tr, tr.force(*scalar)->as<TensorVariable>()); n != 0 && !(n == 1 && list)) return nullptr;
  } else if (!is_tensor) {
    Variable* operand = row.polyfill ? tr.floats.varying_number(*scalar) : tr.floats.number_beside(*scalar, tensors[0]);
    if (!operand) return nullptr;
    *scalar = operand;
    if (!row.polyfill) {
      for (TensorVariable* t : tensors)
        if ((rank(tr, t) == 0) != (rank(tr, tensors[0]) == 0))
          return nullptr;  // one operand does not suit all of a list
    }
  }
  if (!row.polyfill) return tr.real.call_torch(callable, made);
  return tr.call(tr.real.polyfill((std::string(row.polyfill) + (entry.in_place ? "_" : "")).c_str()), made);
}

// bool(v), max(v, w...), min(v, w...) of open floats: what they look at is how these compare.
Variable* decide(Translator& tr, PyObject* callable, const Args& args) {
  static PyObject *const greatest = native::builtin("max"), *const least = native::builtin("min");
  bool truth = callable == reinterpret_cast<PyObject*>(&PyBool_Type) && args.size() == 1;
  bool extreme = (callable == greatest || callable == least) && args.size() > 1;
  auto number = [&](Variable* v) {
    PyObject* c = constant_of(v);
    return (c && (PyFloat_CheckExact(c) || PyLong_CheckExact(c))) ||
           (!v->is(Kind::Float) && tr.floats.is_open_float(v));
  };
  if (!args.kw.empty() || (!truth && !extreme) || !std::all_of(args.pos.begin(), args.pos.end(), number))
    return nullptr;
  if (truth) return tr.boolean(tr.truth(args[0]), Ground::pure(args));
  Variable* best = args[0];
  for (size_t i = 1; i < args.size(); ++i)
    if (tr.truth(tr.compare(callable == greatest ? Py_GT : Py_LT, args[i], best))) best = args[i];
  return best;
}

}  // namespace

Variable* call_with_open_scalar(Translator& tr, PyObject* callable, Args& args) {
  static PyObject* is_instance = native::builtin("isinstance");
  if (callable == is_instance && args.pos.size() == 2 && args.kw.empty() && tr.floats.is_open_float(args[0])) {
    // Its class is all that is asked for.
    if (args[0]->is(Kind::Float)) return nullptr;
    if (args[0]->source.valid()) tr.guards().type_is(args[0]->source, &PyFloat_Type, tr.line());
    args.pos[0] = tr.constant(args[0]->as<LazyVariable>()->object.get(), Ground::pure(args));
    return nullptr;
  }
  if (std::any_of(args.pos.begin(), args.pos.end(), [](Variable* v) { return v->is(Kind::Float); }))
    if (Variable* v = float_function(tr, callable, args)) return v;
  if (Variable* v = size_function(tr, callable, args)) return v;
  if (std::any_of(args.pos.begin(), args.pos.end(), [&](Variable* v) { return tr.floats.is_open_float(v); }))
    if (Variable* v = decide(tr, callable, args)) return v;
  auto [begin, end] = entries().equal_range(callable);
  for (auto it = begin; it != end; ++it)
    if (Variable* v = try_call(tr, callable, args, it->second)) return v;
  return nullptr;
}

}  // namespace braze::capture
