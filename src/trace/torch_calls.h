// A region as calls of torch's functions: as data, and as what makes a torch.fx.GraphModule of them. No torch header.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "symbolic/expr.h"
#include "trace/ambient.h"

namespace braze::trace {

class Tracer;

// All that is left of a capture where a region may have to run as PyTorch's calls.
class TorchCalls {
 public:
  virtual ~TorchCalls() = default;
  // False: graph_module() cannot be had.
  virtual bool has_torch_level() const = 0;
  // As Tracer's. New reference; nullptr: a Python exception is set.
  virtual PyObject* graph_module() = 0;
  // The modes that the module is to be called under: those of the capture.
  virtual Ambient outside() const = 0;
};
// Forgets everything else.
std::unique_ptr<TorchCalls> calls_alone(std::unique_ptr<Tracer> tracer);

// A value in a call.
struct CallValue {
  enum class Kind : uint8_t {
    Nothing,  // no value, or one that no other call looks at
    Tensor,   // of the graph, by number
    Size,     // a torch.SymInt or SymBool
    Object,   // of the program's, by its place in TorchLevel::objects
    Tuple,
    List,
    Dict,   // items: key (an Object), value, ...
    Slice,  // items: start, stop, step
  };
  Kind kind = Kind::Nothing;
  uint32_t number = 0;
  sym::Expr size;
  std::vector<CallValue> items;
};

struct TorchLevel {
  struct Call {
    CallValue fn, args, kwargs, result;
    Ambient ambient;
  };
  struct Input {
    uint32_t tensor = 0;  // its number; 0: one that only the ATen graph has
    std::string name;
    std::vector<sym::Expr> sizes, strides;  // elements
  };
  std::vector<Call> calls;
  std::vector<Input> inputs;
  std::vector<CallValue> outputs;
  std::vector<sym::Expr> symbols;  // further placeholders, before the inputs
  Ambient outside;
  uint32_t num_tensors = 0;        // they are numbered from 1
  std::vector<PyObject*> objects;  // borrowed
};

// `arena`: of the expressions. Takes references to the objects.
std::unique_ptr<TorchCalls> calls_of(TorchLevel level, std::shared_ptr<const sym::ExprArena> arena);

}  // namespace braze::trace
