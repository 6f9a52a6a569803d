// __torch_function__ of the user's: classes of tensors, other objects, and modes that take over the functions of torch.
//
// PyTorch's own dispatch decides whom to ask, in which order and for what function. While capturing it meets stand-ins:
// fakes of a subclass made for the capture, objects in place of the user's, modes in place of those on the stack. Their
// __torch_function__ evaluates the user's in the capture.
#pragma once
#include <unordered_map>
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

class TensorVariable;

// How a class answers for torch functions.
enum class TorchFunction : uint8_t {
  None,   // no torch function
  Plain,  // Tensor's own, or the disabled one: PyTorch carries it out itself
  Own,    // the user's
};
// Why tensors of this subclass of Tensor can't be captured; nullptr: they can.
const char* refuse_tensor_class(PyTypeObject* cls);

void register_torch_function_builtins();

class TorchFunctions {
 public:
  explicit TorchFunctions(Translator& tr) : tr_(tr) {}

  TorchFunction of(PyTypeObject* cls);
  // Whether a call of torch with these arguments now runs a __torch_function__ of the user's.
  bool overrides(const Args& args);

  // Makes t, whose fake this is, a tensor of the class, for the program and for PyTorch.
  void set_tensor_class(TensorVariable* t, PyObject* fake, PyTypeObject* cls);
  PyTypeObject* class_behind(PyTypeObject* cls) const;
  // Tensors in a result made here become tensors of the class.
  Variable* of_tensor_class(Variable* v, PyTypeObject* cls);
  // A real object with the torch function of v.
  Ref stand_in(Variable* v);
  void met_subclass() { subclasses_ = true; }
  bool any() const { return subclasses_ || own_modes_; }
  bool has_modes() const { return own_modes_; }
  bool has_subclasses() const { return subclasses_; }

  // The modes that are on when the capture starts. That they are the same objects is part of the guarded global state.
  void adopt_modes();
  void push_mode(Variable* mode);
  Variable* pop_mode();
  // `with device:`, entered for real while capturing; a context that is open when the segment ends is entered again by
  // the entry.
  void enter_device(PyObject* device);
  bool exit_device();  // false: it was entered before
  PyObject* device() const { return devices_.empty() ? nullptr : devices_.back().get(); }
  // Modes and devices as they were before the capture.
  void leave();
  // What the code pushed and popped is done when the entry runs.
  void emit_modes(Codegen& cg);

 private:
  PyObject* shadow_of(PyTypeObject* cls);
  void shade(PyObject* fake, PyTypeObject* cls);  // PyTorch asks the capture for the torch functions of this fake
  Ref mode_stand_in(Variable* mode);
  std::vector<Ref> modes() const;

  Translator& tr_;
  std::unordered_map<PyTypeObject*, TorchFunction> known_;
  std::unordered_map<PyTypeObject*, Ref> shadows_;  // classes of fakes in place of the user's
  std::unordered_map<Variable*, PyObject*> ducks_;  // objects with a torch function, and theirs
  bool subclasses_ = false, own_modes_ = false;     // whether there are any in this capture
  std::vector<Ref> first_modes_;                    // of torch functions, at the start
  std::vector<Ref> devices_;                        // contexts of devices that are open
};

}  // namespace braze::capture
