// From variables to real values, and calls into CPython and PyTorch on them.
#pragma once
#include <vector>

#include "capture/eval/variable.h"
#include "graph/graph.h"

namespace braze::capture {

class RealCalls {
 public:
  explicit RealCalls(Translator& tr) : tr_(tr) {}

  // Calls a real torch function on fakes; recorded.
  Variable* call_torch(PyObject* fn, const Args& args);
  bool are_values(
      const Args& args);  // neither objects nor functions of the program's, whose classes PyTorch calls back
  // Calls a function of torch that only asks for metadata: on fakes, not recorded.
  Variable* query_torch(PyObject* fn, const Args& args);
  // Calls a real function without effects on constants. Throws Unsupported when an argument is none.
  Variable* call_pure(PyObject* fn, const Args& args);
  // Calls the program's function (`fn`, known as `function`), whose result is the same in every call by its word: once
  // for all of them. nullptr: its arguments are no constants; it is to be evaluated.
  Variable* call_once(PyObject* fn, Variable* function, const Args& args);
  // A call of a functools.lru_cache (a real one) on arguments that are the same objects in every call: what the cache
  // holds for them. nullptr: not for these; the function is to be evaluated.
  Variable* cached_call(Variable* cache, const Args& args);
  // The entry holds where the function in C, called again with these, answers the same.
  void guard_answer(PyObject* fn, const std::vector<PyObject*>& args, PyObject* answer);
  // A polyfill: a function of braze.polyfills by name.
  Variable* polyfill(const char* name);

  // The real value: constants, fakes and containers of them. Throws Unsupported for anything else.
  Ref to_python(Variable* v);
  // Of a member of an enumeration, whose text whoever is given it may ask for: what its dict says of it. Nothing for
  // the rest.
  void guard_member(Variable* v);
  // Throws Unsupported where a function in C that is given this would come to a special method of the program's, which
  // may do and read anything: its class has one, or a class that it holds. That it has none is guarded.
  enum class Methods : uint8_t { All, ButTexts, Texts };  // texts: what it says of itself
  void check_methods(Variable* v, Methods);
  bool is_python_constant(Variable* v);      // to_python gives a value without tensors
  bool holds_python_constants(Variable* v);  // of a container (forced) of whatever class: its items are such
  Variable* specialised(Variable* v);  // open integers fixed to their values in this call, in tuples and lists too
  bool has_tensor(const Args& args);
  graph::Location location() const;  // of the current line

 private:
  Variable* record_call(PyObject* fn, const Args& args);
  Variable* write_out(TensorVariable* out, Variable* made);
  void make_cached_call(Variable* cache, PyObject* pos, PyObject* kw, const Args& args, uint64_t number);
  bool returns_without_effects(Variable* function, const Args& args);

  Translator& tr_;
  struct CachedCall {
    PyObject *cache, *key;
    SourceId source;
  };
  std::vector<CachedCall> cached_calls_;
  uint64_t num_cached_calls_ = 0;  // that the capture came to; those inside of trials don't count
  int trials_ = 0;                 // of cached functions, that go on
};

}  // namespace braze::capture
