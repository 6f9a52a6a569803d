// Functions and classes implemented in C that the evaluator knows. To add one: a handler in the file of its
// concept and a row in that file's table.
#pragma once
#include "capture/eval/variable.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

// Gets forced positional arguments. Returns nullptr to say: not for these arguments (the call is then unsupported).
using BuiltinHandler = Variable* (*)(Translator&, Args&);

// The handler of a callable (function, class, method descriptor), or nullptr.
BuiltinHandler find_builtin(PyObject* callable);
void register_builtin(PyObject* callable, BuiltinHandler handler);
// By import path: "functools", "reduce". Nothing happens when the module or attribute does not exist in this version.
void register_builtin(const char* module, const char* qualname, BuiltinHandler handler);
void register_builtin(pytorch::Name name, BuiltinHandler handler);

// A row of a table of handlers: the name in its module.
struct BuiltinRow {
  const char* name;
  BuiltinHandler handler;
};

// The function of braze.polyfills that is inlined in place of this callable, or nullptr.
const char* find_polyfill(PyObject* callable);
void register_polyfill(const char* module, const char* qualname, const char* name);
void register_polyfill(pytorch::Name of, const char* name);

// The program's function that is evaluated in place of this callable (borrowed), or nullptr.
PyObject* find_substitute(PyObject* callable);
void substitute(PyObject* callable, PyObject* by);  // for good: both stay alive

// Callables in C that the program vouches for: called on fakes, recorded. Those of torch.compiler.allow_in_graph, too.
bool is_allowed_in_graph(PyObject* callable);
void allow_in_graph(PyObject* callable);  // for good: it stays alive

// Functions of C whose handlers know no keyword arguments.
bool takes_no_keywords(PyObject* callable);
void register_no_keywords(const char* module, const char* qualname);

// C functions without effects whose result depends on nothing but their (constant) arguments.
bool is_pure(PyObject* callable);
void register_pure(const char* module, const char* qualname);
void register_pure(pytorch::Name name);

// Whether the program told capture anything of its functions.
bool has_program_rules();

// How a call on torch is done.
enum class TorchRule : uint8_t {
  None,      // no function of torch, or Python code that is to be inlined
  Call,      // on fakes, recorded
  Host,      // Python code of torch that calls functions of the user: run for real, with callbacks (callback.h)
  Constant,  // a query of global state or type information: called directly, its result is a constant (guarded as
             // global state)
};
TorchRule torch_rule(PyObject* callable);

// A call of an operator that torch.library.triton_op made, by its function (builtins/user_kernels.cpp). nullptr: it is
// none, or is called as it is.
Variable* call_triton_operator(Translator& tr, PyObject* op, const Args& args);

// Filled by each file at the first capture.
void register_object_builtins();
void register_number_builtins();
void register_iteration_builtins();
void register_operator_builtins();
void register_pure_builtins();
void register_container_builtins();
void register_functional_builtins();
void register_class_builtins();
void register_torch_builtins();
void register_attention_builtins();
void register_user_kernel_builtins();
void register_logging_builtins();
void register_message_builtins();
void register_print_builtin();
void register_lock_builtins();
void register_autograd_builtins();
void register_checkpoint_builtins();
void register_weak_reference_builtins();
void register_context_variable_builtins();
void register_random_builtins();
void register_numpy_builtins();
void register_numpy_random_builtins();
void register_legacy_constructors();

}  // namespace braze::capture
