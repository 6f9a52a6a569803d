// What calls on PyTorch mean: recorded on fakes, queries of state, changes of state, questions about compiling.
#include <string_view>
#include <unordered_set>

#include "capture/builtins/builtins.h"
#include "capture/cpython/once_loaded.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/guards/torch_queries.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {
namespace {

std::string_view text(PyObject* s) {
  if (!s || !PyUnicode_Check(s)) return {};
  const char* c = PyUnicode_AsUTF8(s);
  return c ? c : "";
}

// Python modules of torch whose functions are functional: called, not inlined.
bool called_module(std::string_view m) {
  static const std::unordered_set<std::string_view> modules{
      "torch.functional", "torch.nn.functional", pytorch::row(pytorch::Name::tensor_module).module,
      pytorch::row(pytorch::Name::jit_internal_module).module, pytorch::row(pytorch::Name::VF_module).module};
  return modules.count(m) != 0;
}

// Of these, what decides by its operands' values and is therefore inlined: a check that only raises stays in the graph.
bool decides_by_values(PyObject* function) {
  std::string_view name = text(reinterpret_cast<PyFunctionObject*>(function)->func_qualname);
  return name == "gaussian_nll_loss";
}

// Modules of transforms: functions that take functions.
bool hosted_module(std::string_view m) {
  static const std::unordered_set<std::string_view> modules{
      "torch.autograd.functional", pytorch::row(pytorch::Name::functorch_apis_module).module,
      pytorch::row(pytorch::Name::eager_transforms_module).module, pytorch::row(pytorch::Name::vmap_module).module};
  return modules.count(m) != 0;
}

TorchRule find_rule(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  if (query_ground(o)) return TorchRule::Constant;
  if (t == &PyFunction_Type) {
    PyObject* globals = PyFunction_GET_GLOBALS(o);
    static PyObject* name = PyUnicode_InternFromString("__name__");
    std::string_view module = text(native::item(Ground::fixed(), globals, name));
    if (hosted_module(module)) return TorchRule::Host;
    return called_module(module) && !decides_by_values(o) ? TorchRule::Call : TorchRule::None;
  }
  if (PyCFunction_Check(o)) {
    // Read directly: for static methods the accessor hides the class.
    PyObject* self = reinterpret_cast<PyCFunctionObject*>(o)->m_self;
    PyTypeObject* functions = pytorch::get_type(pytorch::Name::VariableFunctions);
    if (self && (self == reinterpret_cast<PyObject*>(functions) || PyObject_TypeCheck(self, functions)))
      return TorchRule::Call;
    // Other modules below torch._C change or tell state.
    static const std::unordered_set<PyObject*> operators{
        pytorch::get(pytorch::Name::nn),      pytorch::get(pytorch::Name::fft),    pytorch::get(pytorch::Name::linalg),
        pytorch::get(pytorch::Name::special), pytorch::get(pytorch::Name::sparse), pytorch::get(pytorch::Name::nested)};
    if (self && operators.count(self)) return TorchRule::Call;
    return TorchRule::None;
  }
  if (t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type) {
    auto* owner = reinterpret_cast<PyDescrObject*>(o)->d_type;
    return owner != &PyBaseObject_Type && PyType_IsSubtype(library().tensor, owner) ? TorchRule::Call : TorchRule::None;
  }
  auto* type = reinterpret_cast<PyObject*>(t);
  if (type == library().op_overload || type == library().op_packet) return TorchRule::Call;
  return TorchRule::None;
}

// ---- questions about compiling ----

Variable* is_compiling(Translator& tr, Args&) { return tr.boolean(tr.is_compiling(), Ground::fixed()); }
Variable* no(Translator& tr, Args&) { return tr.boolean(false, Ground::fixed()); }
Variable* zero(Translator& tr, Args&) { return tr.integer(0, Ground::fixed()); }
Variable* nothing(Translator& tr, Args&) { return tr.none(); }

// ---- state ----

// A function that sets a state, the one that says it, and how many leading arguments name which state (a device type).
struct StateRow {
  PyObject *set, *get;
  int keys;
};

PyObject* import(const char* module, const char* name) {
  Ref m = Ref::steal(PyImport_ImportModule(module));
  PyObject* o = m ? native::attr(Ground::fixed(), m.get(), name) : nullptr;
  if (!o) PyErr_Clear();
  return o;
}

constexpr size_t kStates = 10;
std::array<StateRow, kStates> state_rows() {
  using enum pytorch::Name;
  auto torch = [](const char* name) { return import("torch", name); };
  using pytorch::get;
  return {{{get(set_grad_enabled), torch("is_grad_enabled"), 0},
           {torch("set_autocast_enabled"), torch("is_autocast_enabled"), 1},
           {torch("set_autocast_dtype"), torch("get_autocast_dtype"), 1},
           {torch("set_autocast_cache_enabled"), torch("is_autocast_cache_enabled"), 0},
           {get(set_default_dtype), torch("get_default_dtype"), 0},
           {get(set_sdp_use_flash), get(get_flash_sdp_enabled), 0},
           {get(set_sdp_use_mem_efficient), get(get_mem_efficient_sdp_enabled), 0},
           {get(set_sdp_use_math), get(get_math_sdp_enabled), 0},
           {get(set_sdp_use_cudnn), get(get_cudnn_sdp_enabled), 0},
           {get(set_sdp_use_overrideable), get(get_overrideable_sdp_enabled), 0}}};
}

const std::array<StateRow, kStates>& states() {
  static const std::array<StateRow, kStates> all = state_rows();
  return all;
}

template <size_t row>
Variable* set_state(Translator& tr, Args& a) {
  const StateRow& f = states()[row];
  if (static_cast<int>(a.size()) != f.keys + 1 || !a.kw.empty()) return nullptr;
  std::vector<Ref> keys, all;
  for (int i = 0; i <= f.keys; ++i) {
    all.push_back(tr.real.to_python(a[static_cast<size_t>(i)]));
    if (i < f.keys) keys.push_back(all.back());
  }
  tr.effects.set_state(f.get, std::move(keys), f.set, std::move(all));
  return tr.none();
}

// ---- autocast nesting: a counter of PyTorch that only decides when the weight cache is dropped ----

Variable* autocast_nesting(Translator& tr, Args&) {
  // The cache of casted weights holds no fakes: casts are recorded each time, and merged by the compiler.
  return tr.integer(1, Ground::fixed());
}

// Both of its flags are one state.
Variable* use_deterministic(Translator& tr, Args& a) {
  static PyObject *get = import("braze.polyfills", "deterministic_state"),
                  *set = import("braze.polyfills", "set_deterministic_state");
  Variable *warn_only = a.take_kw("warn_only"), *mode = a.size() ? a[0] : a.take_kw("mode");
  if (a.size() > 1 || !a.kw.empty() || !mode || !get || !set) return nullptr;
  std::vector<Ref> state{
      tr.real.to_python(tr.tuple({mode, warn_only ? warn_only : tr.boolean(false, Ground::pure(a))}))};
  tr.effects.set_state(get, {}, set, std::move(state));
  return tr.none();
}

// torch._check and its kin: known now, or checked by the run.
Variable* check_with(Translator& tr, Args& a, const char* exception) {
  if (a.size() < 1 || a[0]->is(Kind::Tensor)) return nullptr;
  Variable* message = a.size() > 1 ? a[1] : nullptr;
  for (auto& [name, v] : a.kw)
    if (PyUnicode_CompareWithASCIIString(name, "message") == 0) message = v;
  if (assume(tr, a[0], exception, message) || tr.truth(a[0])) return tr.none();
  return nullptr;  // the real function raises
}
Variable* torch_check(Translator& tr, Args& a) { return check_with(tr, a, "RuntimeError"); }
Variable* torch_check_index(Translator& tr, Args& a) { return check_with(tr, a, "IndexError"); }
Variable* torch_check_value(Translator& tr, Args& a) { return check_with(tr, a, "ValueError"); }
Variable* torch_check_type(Translator& tr, Args& a) { return check_with(tr, a, "TypeError"); }

// lo <= v <= hi, where these are given. False: it does not hold.
bool within(Translator& tr, Variable* v, Variable* lo, Variable* hi, Variable* message) {
  auto holds = [&](int op, Variable* bound) {
    if (!bound || is_none(tr.force(bound))) return true;
    Variable* c = tr.compare(op, v, bound);
    return assume(tr, c, "RuntimeError", message) || tr.truth(c);
  };
  return holds(Py_GE, lo) && holds(Py_LE, hi);
}

// The number stays what it is; that it is a size says no more than the comparisons.
Variable* check_is_size(Translator& tr, Args& a) {
  Variable *message = a.take_kw("message"), *max = a.take_kw("max");
  if (a.size() < 1 || a.size() > 2 || !a.kw.empty() || a[0]->is(Kind::Tensor)) return nullptr;
  if (within(tr, a[0], tr.integer(0, Ground::fixed()), max, a.size() > 1 ? a[1] : message)) return tr.none();
  if (message) a.kw.emplace_back(tr.intern("message"), message);
  if (max) a.kw.emplace_back(tr.intern("max"), max);
  return nullptr;  // the real function raises
}

// (symbol, min=None, max=None)
Variable* constrain(Translator& tr, Args& a) {
  Variable *min = a.take_kw("min"), *max = a.take_kw("max");
  if (!min && a.size() > 1) min = a[1];
  if (!max && a.size() > 2) max = a[2];
  if (a.size() < 1 || a.size() > 3 || !a.kw.empty() || a[0]->is(Kind::Tensor)) return nullptr;
  if (within(tr, a[0], min, max, nullptr)) return tr.none();
  tr.raise(PyExc_RuntimeError, "Invalid value range");
}
Variable* constrain_size(Translator& tr, Args& a) {
  if (a.size() >= 1 && !a[0]->is(Kind::Tensor) && !within(tr, a[0], tr.integer(0, Ground::fixed()), nullptr, nullptr))
    tr.raise(PyExc_RuntimeError, "Invalid value range");
  return constrain(tr, a);
}

// Whether the program put attributes of its own on a tensor.
Variable* has_attributes(Translator& tr, Args& a) {
  if (a.size() != 1 || !a[0]->is(Kind::Tensor)) return nullptr;
  auto* t = a[0]->as<TensorVariable>();
  if (!t->attributes.empty() || !t->real || !t->source.valid())
    return tr.boolean(!t->attributes.empty(), Ground::pure(a));
  PyObject** dict = _PyObject_GetDictPtr(t->real.get());
  Py_ssize_t n = dict && *dict ? PyDict_GET_SIZE(*dict) : 0;
  tr.guards().length(tr.sources().instance_dict(t->source), n, tr.line());
  return tr.boolean(n != 0, Ground::pure(a));
}

// run_branches(predicate, true_fn, false_fn, operands): see the polyfill.
Variable* run_branches(Translator& tr, Args& a) {
  if (a.size() != 4 || !a.kw.empty() || !a[0]->is(Kind::Tensor)) return nullptr;
  return tr.branches.both(a[0], a[1], a[2], tr.unpack(a[3]));
}

Variable* second(Translator&, Args& a) { return a.size() == 2 ? a[1] : nullptr; }

// Compiling inside of what is compiled changes nothing.
Variable* compiled_inside(Translator&, Args& a) {
  return a.size() == 1 && (a[0]->is(Kind::Function) || a[0]->is(Kind::Module) || a[0]->is(Kind::BoundMethod)) ? a[0]
                                                                                                              : nullptr;
}

// Of torch.optim itself: there it keeps the step out of what torch.compile takes; the function that calls it decides
// elsewhere.
Variable* optimizer_break(Translator& tr, Args&) {
  static PyObject* name = PyUnicode_InternFromString("__name__");
  if (tr.frame() && text(native::item(Ground::fixed(), tr.frame()->globals, name)).substr(0, 12) == "torch.optim.")
    return tr.none();
  tr.unsupported(Reason::ExplicitBreak, "");
}

Variable* anomaly_enabled(Translator& tr, Args& a) {
  static PyObject* get = import("torch", "is_anomaly_enabled");
  if (a.size() < 1 || tr.truth(a[0]) != tr.truth(tr.real.query_torch(get, Args{}))) return nullptr;
  return tr.none();
}

// Other processes take part in it: the call is carried out as it stands, between two graphs.
Variable* collective(Translator& tr, Args&) {
  tr.unsupported(Reason::UnknownFunction, "a collective of torch.distributed");
}

Variable* assert_async(Translator& tr, Args& a) {
  Variable* value = a.size() && a[0]->is(Kind::Tensor) && a.size() + a.kw.size() <= 2
                        ? number_of(tr, a[0]->as<TensorVariable>(), nullptr)
                        : nullptr;
  if (!value) tr.unsupported("an assertion on a tensor");
  Variable* holds = value->type() == &PyBool_Type ? value : tr.compare(Py_NE, value, tr.integer(0, Ground::fixed()));
  if (assume(tr, holds, "RuntimeError", a.size() > 1 ? a[1] : nullptr) || tr.truth(holds)) return tr.none();
  tr.unsupported("an assertion on a tensor");
}

// tensor_split at what a tensor says: at its numbers.
template <bool method>
Variable* split_at_tensor(Translator& tr, Args& a) {
  static PyObject* const function =
      method ? native::type_attr(Ground::fixed(), library().tensor, "tensor_split") : import("torch", "tensor_split");
  if (a.size() < 2 || !a[0]->is(Kind::Tensor) || !a[1]->is(Kind::Tensor)) return nullptr;
  Variable* numbers = list_of_numbers(tr, a[1]->as<TensorVariable>());
  if (!numbers) return nullptr;
  Args given = a;
  given.pos[1] = numbers->is(Kind::List) ? static_cast<Variable*>(tr.tuple(numbers->items(tr))) : numbers;
  return tr.real.call_torch(function, given);
}

}  // namespace

TorchRule torch_rule(PyObject* o) {
  register_loaded();
  PyTypeObject* t = Py_TYPE(o);
  if (t != &PyFunction_Type && !PyCFunction_Check(o) && t != &PyMethodDescr_Type && t != &PyWrapperDescr_Type &&
      reinterpret_cast<PyObject*>(t) != library().op_overload && reinterpret_cast<PyObject*>(t) != library().op_packet)
    return TorchRule::None;
  return find_rule(o);
}

void register_torch_builtins() {
  register_builtin("torch", "use_deterministic_algorithms", use_deterministic);
  register_pure(pytorch::Name::accelerator_getAccelerator);
  for (const char* n : {"is_compiling", "is_dynamo_compiling"}) register_builtin("torch.compiler", n, is_compiling);
  const std::pair<const char*, const char*> falsehoods[] = {{"torch.compiler", "is_exporting"},
                                                            {"torch.jit", "is_scripting"},
                                                            {"torch.jit", "is_tracing"},
                                                            {"torch.onnx", "is_in_onnx_export"}};
  for (auto& [m, n] : falsehoods) register_builtin(m, n, no);
  for (pytorch::Name n : {pytorch::Name::is_scripting, pytorch::Name::jit_trace_is_tracing, pytorch::Name::is_tracing})
    register_builtin(n, no);
  register_builtin(pytorch::Name::get_tracing_state, nothing);
  register_builtin(pytorch::Name::log_api_usage_once, nothing);
  register_builtin(pytorch::Name::len_torch_dispatch_stack, zero);
  register_builtin("torch", "autocast_increment_nesting", autocast_nesting);
  register_builtin("torch", "autocast_decrement_nesting", autocast_nesting);
  register_polyfill("torch.cuda", "get_device_capability", "device_capability");
  register_polyfill("torch.cuda", "get_device_name", "device_name");
  register_polyfill("torch", "cond", "cond");
  register_polyfill(pytorch::Name::while_loop, "while_loop");
  register_polyfill(pytorch::Name::map, "map");
  register_polyfill(pytorch::Name::scan, "scan");
  register_polyfill(pytorch::Name::associative_scan, "associative_scan");
  register_polyfill(pytorch::Name::nested_region, "call_region");
  register_builtin("braze.polyfills", "run_branches", run_branches);
  register_builtin("braze.polyfills", "has_attributes", has_attributes);
  register_builtin(pytorch::Name::check, torch_check);
  register_builtin(pytorch::Name::check_is_size, check_is_size);
  register_builtin(pytorch::Name::check_index, torch_check_index);
  register_builtin(pytorch::Name::check_value, torch_check_value);
  register_builtin(pytorch::Name::check_type, torch_check_type);
  register_builtin(pytorch::Name::constrain_as_size, constrain_size);
  register_builtin("torch", "sym_constrain_range", constrain);
  register_builtin("torch", "sym_constrain_range_for_size", constrain_size);
  register_builtin(pytorch::Name::assert_async, assert_async);
  register_builtin("torch.jit", "annotate", second);
  register_builtin("torch", "compile", compiled_inside);
  register_builtin("braze", "compile", compiled_inside);
  register_builtin(pytorch::Name::optimizer_graph_break, optimizer_break);
  register_builtin("torch", "set_anomaly_enabled", anomaly_enabled);
  register_builtin("torch.compiler", "cudagraph_mark_step_begin", nothing);
  // Once PyTorch's own capture was loaded, it notes every module that is made; ours does not ask for these notes.
  register_builtin(pytorch::Name::generation_tag, nothing);
  register_polyfill("torch.autograd.profiler", "record_function", "NoEffect");
  register_polyfill("torch.fx.traceback", "annotate", "NoEffect");
  register_polyfill("torch.nn.functional", "one_hot", "one_hot");
  register_polyfill("torch.nn.functional", "ctc_loss", "ctc_loss");
  register_polyfill(pytorch::Name::pad_packed_sequence, "pad_packed_sequence");
  register_polyfill(pytorch::Name::pack_padded_sequence, "pack_padded_sequence");
  register_builtin("torch", "tensor_split", split_at_tensor<false>);
  register_builtin("torch", "Tensor.tensor_split", split_at_tensor<true>);
  register_polyfill(pytorch::Name::PositiveDefinite_check, "is_positive_definite");
  register_polyfill(pytorch::Name::fused_adam_, "fused_adam_");
  register_polyfill(pytorch::Name::fused_adamw_, "fused_adamw_");
  register_polyfill(pytorch::Name::fused_sgd_, "fused_sgd_");
  register_polyfill(pytorch::Name::fused_adagrad_, "fused_adagrad_");
  register_polyfill(pytorch::Name::group_tensors_by_device_and_dtype, "group_tensors_by_device_and_dtype");

  const BuiltinHandler setters[kStates] = {set_state<0>, set_state<1>, set_state<2>, set_state<3>, set_state<4>,
                                           set_state<5>, set_state<6>, set_state<7>, set_state<8>, set_state<9>};
  for (size_t i = 0; i < kStates; ++i)
    if (states()[i].set && states()[i].get) register_builtin(states()[i].set, setters[i]);

  register_torch_queries();
  for (const char* n : {"isend",
                        "irecv",
                        "send",
                        "recv",
                        "batch_isend_irecv",
                        "broadcast",
                        "all_reduce",
                        "all_reduce_coalesced",
                        "reduce",
                        "all_gather_object",
                        "gather_object",
                        "send_object_list",
                        "recv_object_list",
                        "broadcast_object_list",
                        "scatter_object_list",
                        "all_gather",
                        "all_gather_single",
                        "all_gather_into_tensor",
                        "all_gather_coalesced",
                        "gather",
                        "scatter",
                        "reduce_scatter",
                        "reduce_scatter_single",
                        "reduce_scatter_tensor",
                        "all_to_all_single",
                        "all_to_all",
                        "barrier",
                        "monitored_barrier",
                        "init_process_group",
                        "destroy_process_group",
                        "new_group"})
    register_builtin("torch.distributed.distributed_c10d", n, collective);
  for (const char* n : {"device", "finfo", "iinfo"}) register_pure("torch", n);
}

}  // namespace braze::capture
