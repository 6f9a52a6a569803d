#include "trace/fx.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include "base/check.h"
#include "trace/below_tracing.h"
#include "trace/fake_tensor.h"
#include "trace/pytorch/names.h"

#include <cctype>
#include <string_view>
#include <unordered_set>

namespace braze::trace {
namespace {

namespace py = pybind11;

// A copy of lists, dicts and tuples that hold others, down to the leaves. New reference.
PyObject* freeze(PyObject* obj) {
  if (PyList_CheckExact(obj)) {
    Py_ssize_t n = PyList_GET_SIZE(obj);
    PyObject* copy = PyList_New(n);
    for (Py_ssize_t i = 0; copy && i < n; ++i) PyList_SET_ITEM(copy, i, freeze(PyList_GET_ITEM(obj, i)));
    return copy;
  }
  if (PyTuple_CheckExact(obj)) {
    Py_ssize_t n = PyTuple_GET_SIZE(obj);
    PyObject* copy = PyTuple_New(n);
    for (Py_ssize_t i = 0; copy && i < n; ++i) PyTuple_SET_ITEM(copy, i, freeze(PyTuple_GET_ITEM(obj, i)));
    return copy;
  }
  if (PyDict_CheckExact(obj)) {
    PyObject* copy = PyDict_New();
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (copy && PyDict_Next(obj, &at, &key, &value)) {
      PyObject* frozen = freeze(value);
      PyDict_SetItem(copy, key, frozen);
      Py_DECREF(frozen);
    }
    return copy;
  }
  Py_INCREF(obj);
  return obj;
}

// "L['x']" -> "l_x_": letters, digits and underscores, as torch.fx wants names.
std::string identifier(const std::string& name) {
  std::string result;
  for (char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!result.empty() && result.back() != '_')
      result += '_';
  }
  if (result.empty() || std::isdigit(static_cast<unsigned char>(result[0]))) result = "input_" + result;
  return result;
}

// Builds a torch.fx.Graph call by call.
class Builder {
 public:
  Builder(const sym::ExprArena& arena, const CallList::Size& size)
      : arena_(arena),
        size_(size),
        unbacked_(arena.find_symbol("u0").has_value()),
        fx_(py::module_::import("torch.fx")),
        graph_(fx_.attr("Graph")()),
        tensor_(py::module_::import("torch").attr("Tensor")),
        operator_(py::module_::import("torch").attr("_ops").attr("OperatorBase")),
        legacy_class_(Py_TYPE(py::module_::import("torch").attr("FloatTensor").ptr())),
        getitem_(py::module_::import("_operator").attr("getitem")),
        getattr_(py::module_::import("builtins").attr("getattr")) {}

  void placeholder(const CallList::Input& input) {
    std::string base = identifier(input.name), unique = base;  // an argument of the generated forward
    for (int n = 1; !names_.insert(unique).second; ++n) unique = base + "_" + std::to_string(n);
    py::object node = graph_.attr("placeholder")(unique);
    if (input.fake) nodes_[input.fake] = node;
    auto texts = [&](const std::vector<sym::Expr>& exprs) {
      py::tuple all(exprs.size());
      for (size_t i = 0; i < exprs.size(); ++i) all[i] = arena_.print(exprs[i]);
      return all;
    };
    node.attr("meta")["braze_layout"] = py::make_tuple(texts(input.sizes), texts(input.strides));
  }

  void symbol(sym::Expr s) {
    std::string unique(arena_.symbol_name(s));
    names_.insert(unique);
    sizes_[s.id] = graph_.attr("placeholder")(unique);
    sizes_[s.id].attr("meta")["braze_symbol"] = true;
  }

  void change(const Ambient& from, const Ambient& to) {
    py::module_ torch = py::module_::import("torch");
    auto set = [&](const py::object& fn, const py::tuple& args) { graph_.attr("call_function")(fn, args); };
    if (from.grad != to.grad)
      set(py::reinterpret_borrow<py::object>(pytorch::get(pytorch::Name::set_grad_enabled)), py::make_tuple(to.grad));
    auto dtype_of = [](int8_t type) {
      return py::reinterpret_borrow<py::object>(
          reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<c10::ScalarType>(type))));
    };
    if (from.default_dtype != to.default_dtype)
      set(torch.attr("set_default_dtype"), py::make_tuple(dtype_of(to.default_dtype)));
    auto autocast = [&](const char* device, bool was, bool is, int8_t dtype_was, int8_t dtype_is) {
      if (dtype_was != dtype_is) set(torch.attr("set_autocast_dtype"), py::make_tuple(device, dtype_of(dtype_is)));
      if (was != is) set(torch.attr("set_autocast_enabled"), py::make_tuple(device, is));
      // As the end of a region does: what was cast in it is cast again in the next call.
      if (was && !is) set(torch.attr("clear_autocast_cache"), py::tuple());
    };
    autocast("cpu", from.autocast_cpu, to.autocast_cpu, from.dtype_cpu, to.dtype_cpu);
    autocast("cuda", from.autocast_cuda, to.autocast_cuda, from.dtype_cuda, to.dtype_cuda);
  }

  void call(PyObject* fn, PyObject* args, PyObject* kwargs, PyObject* result,
            const std::unordered_set<PyObject*>& used) {
    plain_values_ = !PyFunction_Check(fn);
    const std::string attribute = attribute_name(fn);
    // A gradient that the program has set is no attribute of what its node gives.
    if ((!attribute.empty() || fn == getattr_.ptr()) && nodes_.count(result)) return;
    py::object fx_args = map(args);
    py::object fx_kwargs = kwargs ? map(kwargs) : py::dict();
    py::object node;
    bool spelt = true;  // with keywords that Python's grammar takes
    for (auto item : py::reinterpret_borrow<py::dict>(fx_kwargs))
      spelt &= !py::module_::import("keyword").attr("iskeyword")(item.first).cast<bool>();
    if (!spelt) {
      py::dict renamed;
      for (auto item : py::reinterpret_borrow<py::dict>(fx_kwargs))
        renamed[py::str(item.first.cast<std::string>() + "_")] = item.second;
      py::object target =
          py::module_::import("braze.polyfills").attr("renamed_keywords")(py::reinterpret_borrow<py::object>(fn));
      node = graph_.attr("call_function")(target, fx_args, renamed);
    } else if (!attribute.empty())
      node = graph_.attr("call_function")(getattr_, py::make_tuple(fx_args.attr("__getitem__")(0), attribute));
    else if (auto method = method_name(fn, args); !method.empty())
      node = graph_.attr("call_method")(method, fx_args, fx_kwargs);
    else if (PyObject_TypeCheck(fn, &PyMethodDescr_Type) || PyObject_TypeCheck(fn, &PyWrapperDescr_Type))
      // One that its class has no more under its name, which torch.fx finds it by.
      node = graph_.attr("call_function")(
          py::module_::import("braze.polyfills").attr("function_of")(py::reinterpret_borrow<py::object>(fn)), fx_args,
          fx_kwargs);
    else
      node = graph_.attr("call_function")(py::reinterpret_borrow<py::object>(fn), fx_args, fx_kwargs);
    results(result, node, used);
  }

  PyObject* finish(const std::vector<PyObject*>& outputs) {
    py::tuple all(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) all[i] = map(outputs[i]);
    graph_.attr("output")(all);
    py::object root = py::module_::import("torch").attr("nn").attr("Module")();
    for (size_t i = 0; i < constants_.size(); ++i) py::setattr(root, constant_name(i).c_str(), constants_[i]);
    return py::module_::import("braze._fx").attr("graph_module")(root, graph_).release().ptr();
  }

 private:
  // A method of Tensor called on a tensor becomes call_method; its descriptor or function must be what the name finds.
  std::string method_name(PyObject* fn, PyObject* args) {
    if (PyTuple_GET_SIZE(args) == 0 || !nodes_.count(PyTuple_GET_ITEM(args, 0))) return {};
    if (!PyObject_TypeCheck(fn, &PyMethodDescr_Type) && !PyObject_TypeCheck(fn, &PyWrapperDescr_Type) &&
        !PyFunction_Check(fn))
      return {};
    py::object name = py::getattr(fn, "__name__", py::none());
    if (!py::isinstance<py::str>(name)) return {};
    // `__pow__` and others of torch/_tensor.py carry the plain name of what they wrap.
    auto plain = name.cast<std::string>();
    for (const std::string& candidate : {plain, "__" + plain + "__"})
      if (py::getattr(tensor_, candidate.c_str(), py::none()).is(py::handle(fn))) return candidate;
    return {};
  }

  // `Tensor.mT.__get__` and the like: the attribute's name.
  static std::string attribute_name(PyObject* fn) {
    py::handle getter(fn);
    if (PyFunction_Check(fn) || PyCFunction_Check(fn) || !py::hasattr(getter, "__self__")) return {};
    py::object name = py::getattr(getter, "__name__", py::none()), owner = getter.attr("__self__");
    if (!py::isinstance<py::str>(name) || name.cast<std::string>() != "__get__" || !py::hasattr(owner, "__name__"))
      return {};
    return owner.attr("__name__").cast<std::string>();
  }

  static std::string constant_name(size_t i) { return "_tensor_constant" + std::to_string(i); }

  // Operators of Python on placeholders.
  py::object number(sym::Expr e) {
    if (auto c = arena_.as_const(e)) return py::int_(*c);
    if (auto it = sizes_.find(e.id); it != sizes_.end()) return it->second;
    auto ops = arena_.operands(e);
    BRAZE_CHECK(!ops.empty(), "a size symbol that is no placeholder: " + arena_.print(e));
    const char* name = nullptr;
    switch (arena_.kind(e)) {
      case sym::Kind::Add: name = "add"; break;
      case sym::Kind::Mul: name = "mul"; break;
      case sym::Kind::FloorDiv: name = "floordiv"; break;
      case sym::Kind::Mod: name = "mod"; break;
      case sym::Kind::Eq: name = "eq"; break;
      case sym::Kind::Ne: name = "ne"; break;
      case sym::Kind::Lt: name = "lt"; break;
      case sym::Kind::Le: name = "le"; break;
      case sym::Kind::And: name = "and_"; break;
      case sym::Kind::Or: name = "or_"; break;
      case sym::Kind::Not: name = "not_"; break;
      default: break;
    }
    py::module_ torch = py::module_::import("torch");
    py::object fn = name ? py::module_::import("_operator").attr(name)
                         : py::object(torch.attr(arena_.kind(e) == sym::Kind::Min ? "sym_min" : "sym_max"));
    py::object result = number(ops[0]);
    if (ops.size() == 1) result = graph_.attr("call_function")(fn, py::make_tuple(result));
    for (size_t i = 1; i < ops.size(); ++i)
      result = graph_.attr("call_function")(fn, py::make_tuple(result, number(ops[i])));
    sizes_.emplace(e.id, result);
    return result;
  }

  // Fakes become their nodes, in containers too. What a function in C takes for a plain number or text is one: torch.fx
  // writes members of enumerations by names that may change.
  py::object map(PyObject* obj) {
    if (auto it = nodes_.find(obj); it != nodes_.end()) return it->second;
    if (sym::Expr e; size_(obj, &e)) return number(e);
    if (plain_values_ && PyLong_Check(obj) && !PyBool_Check(obj))
      return py::reinterpret_steal<py::object>(PyLong_Type.tp_as_number->nb_int(obj));
    if (plain_values_ && PyFloat_Check(obj)) return py::float_(PyFloat_AS_DOUBLE(obj));
    if (plain_values_ && PyUnicode_Check(obj)) return py::reinterpret_steal<py::object>(PyUnicode_FromObject(obj));
    if (PyTuple_Check(obj)) {
      auto n = static_cast<size_t>(PyTuple_GET_SIZE(obj));
      py::tuple result(n);
      for (size_t i = 0; i < n; ++i) result[i] = map(PyTuple_GET_ITEM(obj, static_cast<Py_ssize_t>(i)));
      return result;
    }
    if (PyList_Check(obj)) {
      py::list result;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(obj); ++i) result.append(map(PyList_GET_ITEM(obj, i)));
      return result;
    }
    if (PyDict_Check(obj)) {
      py::dict result;
      for (auto item : py::reinterpret_borrow<py::dict>(obj)) result[item.first] = map(item.second.ptr());
      return result;
    }
    if (PySlice_Check(obj)) {
      auto* slice = reinterpret_cast<PySliceObject*>(obj);
      py::object start = map(slice->start), stop = map(slice->stop), step = map(slice->step);
      return py::reinterpret_steal<py::object>(PySlice_New(start.ptr(), stop.ptr(), step.ptr()));
    }
    // torch.FloatTensor and the like are known by their names.
    if (Py_TYPE(obj) == legacy_class_)
      return py::str(py::getattr(obj, "__module__").cast<std::string>() + "." +
                     py::getattr(obj, "__name__").cast<std::string>());
    if (py::object dtype = plain_values_ ? dtype_of_class(obj) : py::object()) return dtype;
    if (has_text(obj)) return py::reinterpret_borrow<py::object>(obj);
    // A real tensor, and what else the generated code has no text for: an attribute of the module.
    BRAZE_CHECK(!THPVariable_Check(obj) || !THPVariable_Unpack(obj).unsafeGetTensorImpl()->key_set().has(kFakeKey),
                "a tensor of the graph that no noted call made");
    py::object node = graph_.attr("get_attr")(constant_name(constants_.size()));
    constants_.push_back(py::reinterpret_borrow<py::object>(obj));
    nodes_[obj] = node;
    return node;
  }

  // `float` for torch.float64 and the like, as functions in C take them; null for others.
  static py::object dtype_of_class(PyObject* obj) {
    c10::ScalarType type = obj == reinterpret_cast<PyObject*>(&PyFloat_Type)     ? c10::kDouble
                           : obj == reinterpret_cast<PyObject*>(&PyLong_Type)    ? c10::kLong
                           : obj == reinterpret_cast<PyObject*>(&PyBool_Type)    ? c10::kBool
                           : obj == reinterpret_cast<PyObject*>(&PyComplex_Type) ? c10::kComplexDouble
                                                                                 : c10::ScalarType::Undefined;
    if (type == c10::ScalarType::Undefined) return {};
    return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
  }

  // Whether code that torch.fx generates says it by its repr() or by a name.
  bool has_text(PyObject* obj) const {
    return obj == Py_None || obj == Py_Ellipsis || PyBool_Check(obj) || PyLong_CheckExact(obj) ||
           PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj) || PyUnicode_CheckExact(obj) ||
           PyBytes_CheckExact(obj) || Py_TYPE(obj) == &PyRange_Type || THPDtype_Check(obj) || THPDevice_Check(obj) ||
           THPLayout_Check(obj) || THPMemoryFormat_Check(obj) || py::isinstance(obj, operator_);
  }

  // Unbacked symbols are known by the first result that has them.
  void define(PyObject* object, const py::object& node) {
    sym::Expr e;
    if (!size_(object, &e) || !arena_.depends_on_data(e)) return;
    if (arena_.kind(e) == sym::Kind::Symbol || arena_.kind(e) == sym::Kind::Ne) sizes_.emplace(e.id, node);
  }

  void results(PyObject* result, const py::object& node, const std::unordered_set<PyObject*>& used) {
    if (py::isinstance(result, tensor_)) {
      nodes_[result] = node;
      if (!unbacked_) return;
      WithoutTorchFunction modes;  // the shape is asked for by us, not by the program
      py::object shape = py::reinterpret_borrow<py::object>(result).attr("shape");
      for (size_t d = 0; d < py::len(shape); ++d) {
        py::object size = shape.attr("__getitem__")(d);
        sym::Expr e;
        if (PyLong_Check(size.ptr()) || !size_(size.ptr(), &e) || arena_.kind(e) != sym::Kind::Symbol ||
            !arena_.depends_on_data(e) || sizes_.count(e.id))
          continue;
        sizes_[e.id] = graph_.attr("call_method")("size", py::make_tuple(node, d));
      }
      return;
    }
    if (!PyTuple_Check(result) && !PyList_Check(result)) return define(result, node);
    bool tuple = PyTuple_Check(result);
    if (!tuple && !PyList_Check(result)) return;
    Py_ssize_t n = tuple ? PyTuple_GET_SIZE(result) : PyList_GET_SIZE(result);
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* item = tuple ? PyTuple_GET_ITEM(result, i) : PyList_GET_ITEM(result, i);
      bool container = PyTuple_Check(item) || PyList_Check(item);
      if (!container && !used.count(item) && !(unbacked_ && py::isinstance(item, tensor_))) continue;
      results(item, graph_.attr("call_function")(getitem_, py::make_tuple(node, i)), used);
    }
  }

  const sym::ExprArena& arena_;
  const CallList::Size& size_;
  bool unbacked_ = false;  // sizes of results may be such
  py::object fx_, graph_, tensor_, operator_;
  PyTypeObject* legacy_class_;  // of torch.FloatTensor and the like
  py::object getitem_, getattr_;
  std::unordered_map<uint32_t, py::object> sizes_;  // by expression
  std::unordered_set<std::string> names_;
  std::unordered_map<PyObject*, py::object> nodes_;
  std::vector<py::object> constants_;
  bool plain_values_ = true;  // of the call that is written
};

}  // namespace

CallList::~CallList() {
  for (Call& call : calls_) {
    Py_DECREF(call.fn);
    Py_DECREF(call.args);
    Py_XDECREF(call.kwargs);
    Py_DECREF(call.result);
  }
}

bool CallList::add(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, PyObject* result,
                   const Ambient& ambient) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(nargs));
  if (!tuple) return false;
  for (size_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), freeze(args[i]));
  PyObject* dict = kwargs && PyDict_GET_SIZE(kwargs) ? freeze(kwargs) : nullptr;
  Py_INCREF(fn);
  calls_.push_back(Call{fn, tuple, dict, freeze(result), ambient});
  return true;
}

PyObject* CallList::graph_module(const std::vector<Input>& inputs, const std::vector<PyObject*>& outputs,
                                 const Ambient& outside, const sym::ExprArena& arena,
                                 const std::vector<sym::Expr>& symbols, const Size& size) const {
  try {
    std::vector<PyObject*> reads;
    auto any = [](PyObject*) { return true; };
    operands(any, reads);
    std::unordered_set<PyObject*> used(reads.begin(), reads.end());
    used.insert(outputs.begin(), outputs.end());
    Builder builder(arena, size);
    for (sym::Expr s : symbols) builder.symbol(s);
    for (const Input& input : inputs) builder.placeholder(input);
    Ambient now = outside;
    for (const Call& call : calls_) {
      if (call.ambient != now) builder.change(now, call.ambient);
      now = call.ambient;
      builder.call(call.fn, call.args, call.kwargs, call.result, used);
    }
    if (now != outside) builder.change(now, outside);
    return builder.finish(outputs);
  } catch (py::error_already_set& e) {
    e.restore();
    return nullptr;
  }
}

}  // namespace braze::trace
