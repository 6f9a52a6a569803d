// A torch.Generator on the CPU: its state is a tensor of the graph (polyfills/_random.py).
#pragma once
#include "capture/vars/object.h"

namespace braze::capture {

class RandomGeneratorVariable final : public ObjectVariable {
 public:
  explicit RandomGeneratorVariable(PyTypeObject* cls) : ObjectVariable(cls) {}
  RandomGeneratorVariable(PyObject* real, SourceId s) : ObjectVariable(real, s) {}
  Variable* getattr(Translator&, PyObject* name) override;
  Reg build(Codegen&) override;
  void emit_changes(Codegen&, Reg self) override;
  Variable* state = nullptr;
};

// The class torch.Generator.
PyTypeObject* random_generator_type();
// One that was there before; nullptr: it is to be known by identity alone (on a GPU, or PyTorch's default one).
Variable* wrap_random_generator(Translator& tr, PyObject* generator, SourceId source);
// If one of the arguments is such a generator: what the function of torch gives when it draws from it. nullptr: none
// is.
Variable* call_with_generator(Translator& tr, PyObject* function, const Args& args);

void register_random_generator_builtins();

}  // namespace braze::capture
