// Iterators of itertools: each goes on from what a few fields hold, as in CPython's sources.
#pragma once
#include <vector>

#include "capture/cpython/itertool.h"
#include "capture/vars/iterator.h"

namespace braze::capture {

class ItertoolIterator final : public IteratorVariable {
 public:
  ItertoolIterator(cpython::Itertool tool, std::vector<Variable*> fields) : tool(tool), fields(std::move(fields)) {}
  PyTypeObject* type() const override { return cpython::itertool_type(tool); }
  Variable* next(Translator&) override;
  Reg build(Codegen&) override;
  void emit_advance(Codegen&, Reg self) override;

  const cpython::Itertool tool;
  std::vector<Variable*> fields;  // in the order of the row; nullptr: nothing is held
};

// Handler of braze.polyfills.itertool(name, *fields), without the fields that are empty at first: a new iterator.
Variable* make_itertool(Translator&, Args&);

}  // namespace braze::capture
