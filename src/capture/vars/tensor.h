// Tensors: a fake that the tracer knows, made at the first use of one that was there before.
#pragma once
#include "capture/eval/variable.h"
#include "trace/trace.h"

namespace braze::capture {

class TensorVariable final : public Variable {
 public:
  explicit TensorVariable(PyObject* fake) : Variable(Kind::Tensor), fake(Ref::borrow(fake)) {}
  TensorVariable(PyObject* real, SourceId s) : Variable(Kind::Tensor), real(Ref::borrow(real)) { source = s; }
  PyTypeObject* type() const override;
  // The fake; lifts a real tensor.
  PyObject* value(Translator&);
  Variable* getattr(Translator&, PyObject* name) override;
  void setattr(Translator&, PyObject* name, Variable* value) override;
  Variable* call_method(Translator&, const char* name, Args&) override;
  Variable* getitem(Translator&, Variable* key) override;
  void setitem(Translator&, Variable* key, Variable* value) override;
  bool contains(Translator&, Variable* item) override;
  Variable* iter(Translator&) override;
  bool has_len(Translator&) override { return true; }
  int64_t len(Translator&) override;  // specialised
  Variable* length(Translator&);      // as it is: open where the size is
  bool truth(Translator&) override;
  Ref hash_key(Translator&) override;
  std::vector<Variable*> items(Translator&) override;
  Reg build(Codegen&) override;
  void emit_changes(Codegen&, Reg self);  // what was put on one that existed before
  void emit_gradient(Codegen&, Reg self);
  int64_t times_written() const;  // in the capture; an inference tensor does not count them

  Ref fake;
  PyTypeObject* cls = nullptr;               // the class that the program sees, where the fake's says another
  Ref real;                                  // of a tensor that existed before
  std::vector<trace::SymbolicDim> symbolic;  // its sizes that stay open
  bool hooks_read = false, grad_known = false,
       grad_written = false;                                // see vars/tensor_grad.h; of a tensor that existed before
  Variable* last_hook = nullptr;                            // the handle of the last one that was registered here
  PyObject* first_grad = nullptr;                           // the fake of what .grad was, kept by the tracer
  bool inference = false;                                   // made under torch.inference_mode()
  std::vector<std::pair<PyObject*, Variable*>> attributes;  // that the user's program put on it here
  TensorVariable* data = nullptr;                           // what was assigned to .data here
  int writes = 0;                                           // of its geometry, in place

 private:
  void set_data(Translator&, TensorVariable*);
  bool changes_geometry(Translator&, std::string_view method, Args& args);
};

// Calls getattr(tensor, name) as a recorded function: for attributes that are tensors.
Variable* tensor_attribute(Translator&, TensorVariable*, PyObject* name);

}  // namespace braze::capture
