#include "trace/pytorch/python_kernels.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>

#include "trace/pytorch/names.h"
#include "trace/trace.h"

namespace braze::pytorch {
namespace {

namespace py = pybind11;

// The function for an operator: of the table of Meta kernels, else of that of decompositions; none: neither has it.
py::object find(const c10::OperatorHandle& op) {
  const auto& name = op.schema().operator_name();
  size_t colons = name.name.find("::");
  py::object packet = py::module_::import("torch")
                          .attr("ops")
                          .attr(name.name.substr(0, colons).c_str())
                          .attr(name.name.substr(colons + 2).c_str());
  py::object overload = packet.attr(name.overload_name.empty() ? "default" : name.overload_name.c_str());
  for (Name table : {Name::meta_table, Name::decomposition_table}) {
    py::object found = py::handle(get(table)).attr("get")(overload, py::none());
    if (!found.is_none()) return found;
  }
  return py::none();
}

// nullopt: a kind of argument that no decomposition is asked with.
std::optional<py::object> to_python(trace::ArgKind kind, const c10::IValue& v) {
  if (v.isNone()) return py::none();
  auto list = [](auto&& items, auto&& make) {
    py::list out;
    for (auto&& item : items) out.append(make(item));
    return out;
  };
  switch (kind) {
    case trace::ArgKind::Tensor: return py::cast(v.toTensor());
    case trace::ArgKind::TensorList:
      return list(v.toListRef(), [](const c10::IValue& t) -> py::object {
        return t.isNone() ? py::object(py::none()) : py::cast(t.toTensor());
      });
    case trace::ArgKind::Int: return v.isSymInt() ? py::cast(v.toSymInt()) : py::cast(v.toInt());
    case trace::ArgKind::IntList:
      if (!v.isList()) return py::cast(v.isSymInt() ? v.toSymInt() : c10::SymInt(v.toInt()));
      return list(v.toListRef(),
                  [](const c10::IValue& i) { return i.isSymInt() ? py::cast(i.toSymInt()) : py::cast(i.toInt()); });
    case trace::ArgKind::Float: return py::cast(v.toDouble());
    case trace::ArgKind::FloatList: return list(v.toDoubleVector(), [](double d) { return py::cast(d); });
    case trace::ArgKind::Bool: return py::cast(v.toBool());
    case trace::ArgKind::BoolList: return list(v.toBoolList(), [](bool b) { return py::cast(b); });
    case trace::ArgKind::String: return py::cast(v.toStringRef());
    case trace::ArgKind::ScalarType: return py::cast(v.toScalarType());
    case trace::ArgKind::MemoryFormat: return py::cast(v.toMemoryFormat());
    case trace::ArgKind::Device: return py::cast(v.toDevice());
    case trace::ArgKind::Scalar:
      if (v.isSymInt()) return py::cast(v.toSymInt());
      if (v.isBool()) return py::cast(v.toBool());
      if (v.isInt()) return py::cast(v.toInt());
      if (v.isDouble()) return py::cast(v.toDouble());
      return std::nullopt;
    case trace::ArgKind::Layout:
    case trace::ArgKind::Generator:
    case trace::ArgKind::Other: return std::nullopt;
  }
  return std::nullopt;
}

bool is_default(const c10::Argument& formal, const c10::IValue& v) {
  const auto& d = formal.default_value();
  if (!d) return false;
  if (d->isNone() || v.isNone()) return d->isNone() && v.isNone();
  if (v.isTensor() || v.isSymInt() || v.isList()) return false;
  return *d == v;
}

bool give_results(const trace::OpInfo& info, const py::object& result, torch::jit::Stack& stack) {
  size_t n = info.tensor_results.size();
  py::object results = n == 1 ? py::object(py::make_tuple(result)) : result;
  if (!py::isinstance<py::sequence>(results) || py::len(results) != n) return false;
  torch::jit::Stack out;
  for (size_t i = 0; i < n; ++i) {
    py::object r = py::reinterpret_borrow<py::object>(results[py::int_(i)]);
    if (info.list_results[i]) {
      c10::List<at::Tensor> tensors;
      for (py::handle t : r) {
        if (!THPVariable_Check(t.ptr())) return false;
        tensors.push_back(THPVariable_Unpack(t.ptr()));
      }
      out.emplace_back(std::move(tensors));
    } else {
      if (!info.tensor_results[i] || !THPVariable_Check(r.ptr())) return false;
      out.emplace_back(THPVariable_Unpack(r.ptr()));
    }
  }
  for (const c10::IValue& v : out)
    if (v.isTensor() && !v.toTensor().is_meta()) return false;
  stack = std::move(out);
  return true;
}

// Calls the function with the arguments of the operator. False: it takes none like these, or gave something else.
bool call_python(const py::object& function, const c10::OperatorHandle& op, const trace::OpInfo& info,
                 torch::jit::Stack& stack) {
  const auto& formals = op.schema().arguments();
  size_t positional = 0;
  for (size_t i = 0; i < formals.size(); ++i)
    if (!formals[i].kwarg_only() && !is_default(formals[i], stack[i])) positional = i + 1;
  py::list args;
  py::dict named;
  for (size_t i = 0; i < formals.size(); ++i) {
    if (i >= positional && (!formals[i].kwarg_only() || is_default(formals[i], stack[i]))) continue;
    auto value = to_python(info.args[i], stack[i]);
    if (!value) return false;
    if (i < positional)
      args.append(*value);
    else
      named[formals[i].name().c_str()] = *value;
  }
  return give_results(info, function(*args, **named), stack);
}

// The kernel for fakes of an operator; none: nobody registered one.
py::object fake_kernel(const std::string& name) {
  if (name.starts_with("aten::") || name.starts_with("prims::")) return py::none();
  py::handle registry = get(Name::fake_kernels);
  // find() alone, of PyTorch before 2.12, enters what it does not find.
  py::object entry = registry.attr(py::hasattr(registry, "get") ? "get" : "find")(name);
  return entry.is_none() ? py::object(py::none()) : py::object(entry.attr("fake_impl").attr("kernel"));
}

// No modes of the program's, and those that are entered from here on are heard.
class OwnModes {
  using TLS = at::impl::PythonTorchFunctionTLS;

 public:
  OwnModes() : before_(TLS::get_state()) { TLS::set_state(TLS()); }
  ~OwnModes() { TLS::set_state(before_); }
  OwnModes(const OwnModes&) = delete;
  OwnModes& operator=(const OwnModes&) = delete;

 private:
  TLS before_;
};

// A context manager of Python's for a scope of C++.
class Entered {
 public:
  explicit Entered(py::object context) : context_(std::move(context)) { context_.attr("__enter__")(); }
  ~Entered() {
    py::error_scope kept;  // what is thrown through here
    try {
      context_.attr("__exit__")(py::none(), py::none(), py::none());
    } catch (py::error_already_set&) {
    }
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  py::object context_;
};

}  // namespace

bool run_fake_kernel(const c10::OperatorHandle& op, const trace::OpInfo& info, torch::jit::Stack& stack,
                     const NewSize& new_size, bool on_cpu) {
  if (info.name.starts_with("aten::")) return false;
  py::gil_scoped_acquire gil;
  py::object kernel = fake_kernel(op.schema().name());
  if (kernel.is_none()) return false;
  std::exception_ptr refused;
  // Python code is between: what new_size throws is kept here and thrown on behind it.
  py::cpp_function make(
      [&](int64_t min, std::optional<int64_t> max) -> c10::SymInt {
        try {
          return new_size(min, max);
        } catch (...) {
          refused = std::current_exception();
          throw py::value_error("a size that depends on values");
        }
      },
      py::kw_only(), py::arg("min") = 0, py::arg("max") = py::none());
  py::object context = py::module_::import("types").attr("SimpleNamespace")(py::arg("new_dynamic_size") = make,
                                                                            py::arg("create_unbacked_symint") = make);
  // A kernel for fakes finds its context by this function alone, which is made to be exchanged for a call.
  py::object scope = py::handle(get(Name::set_ctx_getter))(py::cpp_function([context] { return context; }));
  OwnModes modes;
  Entered found(scope);
  std::optional<Entered> made;
  if (on_cpu) made.emplace(py::module_::import("torch").attr("device")("meta"));
  try {
    return call_python(kernel.attr("func"), op, info, stack);
  } catch (...) {
    if (refused) std::rethrow_exception(refused);
    throw;
  }
}

bool run_decomposition(const c10::OperatorHandle& op, const trace::OpInfo& info, torch::jit::Stack& stack) {
  py::gil_scoped_acquire gil;
  try {
    py::object function = find(op);
    if (function.is_none()) return false;
    // What it calls are kernels in Python, too: some in C++ take no symbols.
    Entered kernels(py::handle(get(Name::enable_python_dispatcher))());
    return call_python(function, op, info, stack);
  } catch (py::error_already_set& e) {
    if (trace::is_graph_break_exception(e.value().ptr(), nullptr, nullptr))
      throw;  // a decision that only the run can make
    return false;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace braze::pytorch
