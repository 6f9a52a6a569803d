#include "trace/torch_calls.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/python_variable.h>

#include <utility>

#include "base/check.h"
#include "trace/fx.h"
#include "trace/joint.h"
#include "trace/trace.h"

namespace braze::trace {
namespace {

class CallsOfTracer final : public TorchCalls {
 public:
  explicit CallsOfTracer(std::unique_ptr<Tracer> tracer) : tracer_(std::move(tracer)) {
    differentiable(*tracer_).forget_inputs();
  }
  bool has_torch_level() const override { return tracer_->has_torch_level(); }
  PyObject* graph_module() override { return tracer_->graph_module(); }
  Ambient outside() const override { return differentiable(*tracer_).outside(); }

 private:
  std::unique_ptr<Tracer> tracer_;
};

class CallsOfLevel final : public TorchCalls {
 public:
  CallsOfLevel(TorchLevel level, std::shared_ptr<const sym::ExprArena> arena)
      : level_(std::move(level)), arena_(std::move(arena)) {
    for (PyObject* o : level_.objects) Py_INCREF(o);
  }
  ~CallsOfLevel() override {
    for (PyObject* o : level_.objects) Py_DECREF(o);
  }
  bool has_torch_level() const override { return true; }
  Ambient outside() const override { return level_.outside; }

  PyObject* graph_module() override {
    StandIns made(*this);
    CallList list;
    for (const TorchLevel::Call& call : level_.calls) {
      PyObject *fn = made.value(call.fn), *args = made.value(call.args),
               *kwargs = call.kwargs.kind == CallValue::Kind::Nothing ? nullptr : made.value(call.kwargs),
               *result = made.value(call.result);
      if (!fn || !args || !result || !PyTuple_Check(args)) return nullptr;
      auto** items = reinterpret_cast<PyTupleObject*>(args)->ob_item;
      if (!list.add(fn, items, static_cast<size_t>(PyTuple_GET_SIZE(args)), kwargs, result, call.ambient))
        return nullptr;
    }
    std::vector<CallList::Input> inputs;
    for (const TorchLevel::Input& in : level_.inputs)
      inputs.push_back({in.tensor ? made.tensor(in.tensor) : nullptr, in.name, in.sizes, in.strides});
    std::vector<PyObject*> outputs;
    for (const CallValue& v : level_.outputs) outputs.push_back(made.value(v));
    CallList::Size size = [&](PyObject* o, sym::Expr* out) {
      auto it = made.sizes.find(o);
      if (it != made.sizes.end()) *out = it->second;
      return it != made.sizes.end();
    };
    return list.graph_module(inputs, outputs, level_.outside, *arena_, level_.symbols, size);
  }

 private:
  // Objects that are as different as those of the capture were, while the module is built.
  struct StandIns {
    explicit StandIns(const CallsOfLevel& of) : of(of), tensors(of.level_.num_tensors) {}
    ~StandIns() {
      for (PyObject* o : owned) Py_XDECREF(o);
    }
    StandIns(const StandIns&) = delete;

    PyObject* own(PyObject* o) { return owned.push_back(o), o; }
    PyObject* tensor(uint32_t number) {
      PyObject*& t = tensors.at(number - 1);
      if (!t) t = own(THPVariable_Wrap(at::empty({0}, at::TensorOptions(at::kMeta))));
      return t;
    }
    // Lives as long as this.
    PyObject* value(const CallValue& v) {
      auto n = static_cast<Py_ssize_t>(v.items.size());
      auto item = [&](Py_ssize_t i) { return Py_XNewRef(value(v.items[static_cast<size_t>(i)])); };
      switch (v.kind) {
        case CallValue::Kind::Nothing: return Py_None;
        case CallValue::Kind::Tensor: return tensor(v.number);
        case CallValue::Kind::Object: return of.level_.objects.at(v.number);
        case CallValue::Kind::Size: {
          PyObject* o = own(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
          sizes[o] = v.size;
          return o;
        }
        case CallValue::Kind::Tuple: {
          PyObject* t = own(PyTuple_New(n));
          for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(t, i, item(i));
          return t;
        }
        case CallValue::Kind::List: {
          PyObject* t = own(PyList_New(n));
          for (Py_ssize_t i = 0; i < n; ++i) PyList_SET_ITEM(t, i, item(i));
          return t;
        }
        case CallValue::Kind::Dict: {
          PyObject* d = own(PyDict_New());
          for (size_t i = 0; i + 1 < v.items.size(); i += 2)
            if (PyDict_SetItem(d, value(v.items[i]), value(v.items[i + 1])) < 0) return nullptr;
          return d;
        }
        case CallValue::Kind::Slice: {
          BRAZE_CHECK(n == 3, "a slice of three");
          return own(PySlice_New(value(v.items[0]), value(v.items[1]), value(v.items[2])));
        }
      }
      return nullptr;
    }

    const CallsOfLevel& of;
    std::vector<PyObject*> tensors, owned;
    std::unordered_map<PyObject*, sym::Expr> sizes;
  };

  TorchLevel level_;
  std::shared_ptr<const sym::ExprArena> arena_;
};

}  // namespace

std::unique_ptr<TorchCalls> calls_alone(std::unique_ptr<Tracer> tracer) {
  return std::make_unique<CallsOfTracer>(std::move(tracer));
}

std::unique_ptr<TorchCalls> calls_of(TorchLevel level, std::shared_ptr<const sym::ExprArena> arena) {
  return std::make_unique<CallsOfLevel>(std::move(level), std::move(arena));
}

namespace {

class Describer {
 public:
  Describer(const std::function<bool(PyObject*)>& is_fake, const CallList::Size& size, TorchLevel& out)
      : is_fake_(is_fake), size_(size), out_(out) {}

  uint32_t tensor(PyObject* fake) {
    auto [it, fresh] = tensors_.try_emplace(fake, out_.num_tensors + 1);
    if (fresh) ++out_.num_tensors;
    return it->second;
  }
  CallValue object(PyObject* o) {
    auto [it, fresh] = objects_.try_emplace(o, static_cast<uint32_t>(out_.objects.size()));
    if (fresh) out_.objects.push_back(o);
    return {CallValue::Kind::Object, it->second, {}, {}};
  }
  // `looked_at`: objects, too, not tensors and sizes alone.
  CallValue value(PyObject* o, bool looked_at) {
    using Kind = CallValue::Kind;
    if (!o) return {};
    if (is_fake_(o)) return {Kind::Tensor, tensor(o), {}, {}};
    if (sym::Expr e; size_(o, &e)) return {Kind::Size, 0, e, {}};
    CallValue out;
    auto add = [&](PyObject* item) { out.items.push_back(value(item, looked_at)); };
    // What is returned may be of torch.return_types.
    if (looked_at ? PyTuple_CheckExact(o) : PyTuple_Check(o)) {
      out.kind = Kind::Tuple;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) add(PyTuple_GET_ITEM(o, i));
    } else if (PyList_CheckExact(o)) {
      out.kind = Kind::List;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) add(PyList_GET_ITEM(o, i));
    } else if (PyDict_CheckExact(o) && looked_at) {
      out.kind = Kind::Dict;
      PyObject *key, *item;
      Py_ssize_t at = 0;
      while (PyDict_Next(o, &at, &key, &item)) {
        out.items.push_back(object(key));
        add(item);
      }
    } else if (PySlice_Check(o)) {
      auto* slice = reinterpret_cast<PySliceObject*>(o);
      out.kind = Kind::Slice;
      for (PyObject* part : {slice->start, slice->stop, slice->step}) add(part);
    } else if (looked_at) {
      return object(o);
    }
    return out;
  }

 private:
  const std::function<bool(PyObject*)>& is_fake_;
  const CallList::Size& size_;
  TorchLevel& out_;
  std::unordered_map<PyObject*, uint32_t> tensors_, objects_;
};

}  // namespace

TorchLevel CallList::describe(const std::vector<Input>& inputs, const std::vector<PyObject*>& outputs,
                              const Ambient& outside, const std::vector<sym::Expr>& symbols,
                              const std::function<bool(PyObject*)>& is_fake, const Size& size) const {
  TorchLevel out;
  Describer d(is_fake, size, out);
  for (const Input& in : inputs) out.inputs.push_back({in.fake ? d.tensor(in.fake) : 0, in.name, in.sizes, in.strides});
  for (const Call& c : calls_)
    out.calls.push_back(
        {d.object(c.fn), d.value(c.args, true), d.value(c.kwargs, true), d.value(c.result, false), c.ambient});
  for (PyObject* o : outputs) out.outputs.push_back(d.value(o, true));
  out.symbols = symbols;
  out.outside = outside;
  return out;
}

}  // namespace braze::trace
