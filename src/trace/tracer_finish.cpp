#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "graph/copied_view.h"
#include "graph/raises.h"
#include "graph/random.h"
#include "symbolic/given_symbol.h"
#include "trace/convert.h"
#include "trace/fake_tensor.h"
#include "trace/graph_break.h"
#include "trace/kernel_launches.h"
#include "trace/pytorch/autograd_node.h"
#include "trace/tracer_impl.h"

namespace braze::trace {

namespace functional = at::functionalization::impl;

// What is known of the sizes now, in `captured`, the graph (the recorder's) and for graph_module().
void TracerImpl::finish_sizes(Captured& captured, graph::Graph& graph) {
  recorder_->refresh_sizes(true);
  SizeEnv& env = *recorder_->sizes();
  sym::ExprArena& arena = env.arena();
  captured.size_symbols.clear();
  captured.size_guards.clear();
  captured.symbol_values.clear();
  graph.size_symbols.clear();
  graph_symbols_.clear();
  captured.size_places = places_;
  for (const auto& f : env.facts()) captured.size_guards.push_back({f.condition, f.where});
  for (sym::Expr s : symbols_) {
    bool base = std::find(env.base().begin(), env.base().end(), s) != env.base().end();
    SizeSymbol made{s, base ? arena.range(s) : sym::Range{}, base ? env.declared(s) : sym::Range{}, -1};
    if (base && arena.symbol_kind(s) == sym::SymbolKind::Unbacked)
      made.range = made.declared;  // what is assumed, the run asserts
    if (const auto* fact = base ? env.specialised(s) : nullptr)
      made.fixed_by = static_cast<int32_t>(fact - env.facts().data());
    captured.size_symbols.push_back(made);
    if (!base || env.simplify(s) != s) continue;
    // The first place that is an input of the graph says so in its text.
    std::pair<uint32_t, int32_t> origin{sym::kGivenSymbol, 0};
    for (const SizePlace& p : places_) {
      if (symbols_[p.symbol] != s || !p.tensor) continue;
      auto at = std::find(inputs_.begin(), inputs_.end(), p.tensor);
      if (at == inputs_.end()) continue;
      origin = {static_cast<uint32_t>(at - inputs_.begin()), p.dim};
      break;
    }
    graph.size_symbols.push_back({s, origin});
    captured.symbol_values.push_back(s);
  }
  for (const auto& d : env.derived()) {
    if (env.simplify(d.symbol) != d.symbol) continue;
    graph.size_symbols.push_back({d.symbol, {sym::kGivenSymbol, 0}});
    captured.symbol_values.push_back(d.definition);
  }
  for (const auto& s : graph.size_symbols) graph_symbols_.push_back(s.first);
  finish_offsets(captured);
  for (SizeGuard g : stride_guards_) {
    g.condition = env.over_base(env.simplify(g.condition));
    if (!arena.is_const(g.condition, 1)) captured.size_guards.push_back(g);
  }
}

// Of inputs whose place in their storage was asked for.
void TracerImpl::finish_offsets(Captured& captured) {
  sym::ExprArena& arena = recorder_->arena();
  std::unordered_set<uint32_t> seen;
  for (const Lifted& l : lifted_) {
    bool relied = std::find(recorder_->offset_slots.begin(), recorder_->offset_slots.end(), l.slot) !=
                  recorder_->offset_slots.end();
    if (!relied || !l.real || !seen.insert(l.slot).second) continue;
    auto [known, fresh] = offset_symbols_.try_emplace(l.slot);
    if (fresh) known->second = arena.symbol("s" + std::to_string(l.slot) + "_offset", sym::SymbolKind::Size, {});
    sym::Expr read = known->second;
    auto symbol = static_cast<uint32_t>(captured.size_symbols.size());
    captured.size_symbols.push_back({read, {}, {}, -1});
    captured.size_places.push_back({symbol, l.real, kStorageOffset});
    captured.size_guards.push_back({arena.eq(read, arena.constant(recorder_->slots[l.slot].real.storage_offset())), 0});
  }
}

// It was written to by operators that autograd noted.
bool TracerImpl::differs_in_history(const Lifted& l) const {
  const at::Tensor& fake = THPVariable_Unpack(l.fake);
  const at::Tensor& real = recorder_->slots[l.slot].real;
  if (!fake.requires_grad() || fake.is_leaf()) return false;
  if (torch::autograd::impl::gradient_edge(fake) == l.outer) return false;
  // Eager has more to say about writing to a view that another way of making views gave.
  if (auto* view = torch::autograd::impl::get_view_autograd_meta(real);
      view && view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT)
    throw Unsupported(Reason::UnsupportedMutation,
                      "an input is changed that is one of several views, or a view made without grad");
  return true;
}

// Inputs whose data changed: their last values are written back. Fills mutated_.
std::vector<uint32_t> TracerImpl::write_back_mutations(graph::Graph& graph) {
  std::vector<uint32_t> counts;
  for (size_t i = 0; i < lifted_.size(); ++i) {
    const at::Tensor& fake = THPVariable_Unpack(lifted_[i].fake);
    if (!functional::isFunctionalTensor(fake))
      throw Unsupported(Reason::UnsupportedMutation, "the data of an input are replaced");
    auto* wrapper = functional::unsafeGetFunctionalWrapper(fake);
    const at::Tensor& real = recorder_->slots[lifted_[i].slot].real;
    if (wrapper->has_metadata_mutation() || wrapper->was_storage_changed())
      throw Unsupported(Reason::UnsupportedMutation, "the sizes, strides or storage of an input are changed");
    bool same_storage = fake.storage().unsafeGetStorageImpl() == lifted_[i].storage;
    if (!same_storage || (!wrapper->has_data_mutation() && unwrap_fake(fake) != lifted_[i].inner.unsafeGetTensorImpl()))
      throw Unsupported(Reason::UnsupportedMutation, "the data of an input are replaced");
    bool history = differs_in_history(lifted_[i]);
    if (fake.requires_grad() != real.requires_grad() && !history)
      throw Unsupported(Reason::UnsupportedMutation, "requires_grad of an input is changed");
    if (!wrapper->has_data_mutation()) continue;
    if (history) written_with_history_.push_back(i);
    functional::sync(fake);
    FakeTensor* now = unwrap_fake(fake);
    BRAZE_CHECK(now, "an input's functional wrapper holds no fake");
    mutated_[fake.storage().unsafeGetStorageImpl()] = i;
    if (now->slot() == lifted_[i].slot && !now->value().valid() && !now->is_conj() && !now->is_neg()) continue;
    graph::ValueId input = recorder_->use_slot(lifted_[i].slot), value = recorder_->value_of(*now);
    if (input == value) continue;
    if (graph.type(input).dtype != graph.type(value).dtype || graph.type(input).sizes != graph.type(value).sizes)
      throw Unsupported(Reason::UnsupportedMutation, "an input would get values of another dtype or size");
    graph.writebacks.push_back({input, value});
    // Taking over the history counts as one.
    const uint32_t count = fake.is_inference() ? 0 : fake.unsafeGetTensorImpl()->version_counter().current_version();
    counts.push_back(history && count > 0 ? count - 1 : count);
  }
  if (graph.writebacks.empty()) return counts;
  // A write through one of two inputs that share memory would have to be seen through the other.
  std::unordered_map<const c10::StorageImpl*, size_t> owners;
  for (const Lifted& l : lifted_) ++owners[recorder_->slots[l.slot].real.storage().unsafeGetStorageImpl()];
  for (const auto& [storage, i] : mutated_)
    if (owners[recorder_->slots[lifted_[i].slot].real.storage().unsafeGetStorageImpl()] > 1)
      throw Unsupported(Reason::UnsupportedMutation, "an input is changed that shares its memory with another");
  return counts;
}

graph::ValueId TracerImpl::memory_of_output(const FakeTensor& fake, const at::Tensor& output) {
  if (fake.is_conj() != output.is_conj() || fake.is_neg() != output.is_neg())
    throw Unsupported(Reason::UnsupportedMutation, "what a lazily conjugated or negated tensor holds is replaced");
  return recorder_->memory_of(fake);
}

graph::ValueId TracerImpl::output_value(PyObject* output, bool& needs_grad) {
  if (output == Py_None) return {};
  BRAZE_CHECK(THPVariable_Check(output), "an output that is not a tensor");
  const at::Tensor& tensor = THPVariable_Unpack(output);
  needs_grad |= tensor.requires_grad() && !by_fake_.count(output) && !without_history_.count(output);
  if (!functional::isFunctionalTensor(tensor)) {
    if (FakeTensor* fake = unwrap_fake(tensor)) return memory_of_output(*fake, tensor);
    return recorder_->constant(tensor);
  }
  auto* wrapper = functional::unsafeGetFunctionalWrapper(tensor);
  if (auto it = mutated_.find(tensor.storage().unsafeGetStorageImpl()); it != mutated_.end()) {
    // It aliases an input that is written after all nodes: the same views, of the input itself.
    at::Tensor view = lifted_[it->second].inner;
    for (const auto& meta : wrapper->view_metas()) view = meta->forward(view);
    FakeTensor* fake = as_fake(view);
    BRAZE_CHECK(fake, "views of an input are not fakes");
    return memory_of_output(*fake, tensor);
  }
  functional::sync(tensor);
  FakeTensor* fake = unwrap_fake(tensor);
  BRAZE_CHECK(fake, "a functional wrapper holds no fake");
  return memory_of_output(*fake, tensor);
}

void TracerImpl::take_inputs(std::vector<PyObject*>& inputs, std::vector<PyObject*>& constants) {
  // What only the torch-level graph reads is an input, too: both graphs have the same.
  std::vector<PyObject*> read;
  calls_.operands([&](PyObject* o) { return by_fake_.count(o) != 0; }, read);
  for (PyObject* fake : read) recorder_->use_slot(lifted_[by_fake_[fake]].slot);

  std::unordered_map<uint32_t, PyObject*> reals;
  for (const Lifted& l : lifted_) reals[l.slot] = l.real;
  inputs.clear();
  for (size_t i = 0; i < recorder_->input_slots.size(); ++i) {
    uint32_t slot = recorder_->input_slots[i];
    if (auto it = reals.find(slot); it != reals.end()) {
      inputs.push_back(it->second);
    } else {
      PyObject* constant = THPVariable_Wrap(recorder_->slots[slot].real);
      constants.push_back(constant);
      inputs.push_back(constant);
    }
  }
}

namespace {

std::optional<OutputView::Made> how_made(const at::Tensor& view) {
  using torch::autograd::CreationMeta;
  switch (torch::autograd::impl::get_view_autograd_meta(view)->get_creation_meta()) {
    case CreationMeta::DEFAULT: return OutputView::Made::Plainly;
    case CreationMeta::MULTI_OUTPUT_NODE: return OutputView::Made::AsOneOfSeveral;
    case CreationMeta::NO_GRAD_MODE: return OutputView::Made::WithoutGrad;
    case CreationMeta::INFERENCE_MODE: return OutputView::Made::ForInference;
    default: return std::nullopt;
  }
}

}  // namespace

// Outputs that are views of inputs or of each other. Where several are views of one tensor that is no output, that
// becomes one, too.
std::vector<OutputView> TracerImpl::find_views(graph::Graph& graph) {
  std::unordered_map<const c10::TensorImpl*, uint32_t> outputs, inputs;
  std::unordered_map<const c10::TensorImpl*, std::vector<uint32_t>> of_others;  // views of what is neither
  auto number = [&](const Lifted& l) {
    auto at = std::find(recorder_->input_slots.begin(), recorder_->input_slots.end(), l.slot);
    return static_cast<uint32_t>(at - recorder_->input_slots.begin());
  };
  for (const Lifted& l : lifted_)
    if (uint32_t i = number(l); i < graph.inputs.size() && graph.inputs[i].kind != graph::InputKind::Constant)
      inputs.emplace(THPVariable_Unpack(l.fake).unsafeGetTensorImpl(), i);
  auto count = static_cast<uint32_t>(outputs_.size());
  auto skipped = [&](uint32_t i) { return outputs_[i] == Py_None || !graph.outputs[i].valid(); };
  for (uint32_t i = 0; i < count; ++i)
    if (!skipped(i)) outputs.emplace(THPVariable_Unpack(outputs_[i]).unsafeGetTensorImpl(), i);
  std::vector<OutputView> views;
  auto add = [&](uint32_t output, graph::ValueId base_value, uint32_t base, bool of_input) {
    graph::ValueId value = graph.outputs[output];
    auto made = how_made(THPVariable_Unpack(outputs_[output]));
    if (!made || graph::memory_root(graph, value) != graph::memory_root(graph, base_value) ||
        graph.type(value).dtype != graph.type(base_value).dtype)
      return;
    // A view is made again with the history of its base.
    if (const at::Tensor& t = THPVariable_Unpack(outputs_[output]); t.requires_grad() && !t._base().requires_grad())
      throw Unsupported(Reason::UnsupportedTensor, "a view that was given requires_grad is returned");
    // Parts of a view that was made without gradients have a history that ends there.
    const auto& history = torch::autograd::impl::get_autograd_meta(THPVariable_Unpack(outputs_[output]))->grad_fn_;
    if (made == OutputView::Made::AsOneOfSeveral && history &&
        std::ranges::none_of(history->next_edges(), [](const auto& e) { return e.is_valid(); }))
      throw Unsupported(Reason::UnsupportedTensor, "a part of a view that was made without gradients is returned");
    if (made == OutputView::Made::WithoutGrad &&
        torch::autograd::impl::get_autograd_meta(THPVariable_Unpack(outputs_[output]))->grad_fn_)
      throw Unsupported(Reason::UnsupportedTensor, "a view with a history of one that was made without is returned");
    // as_strided, by which such a view is made again, would divide its gradient among the elements that share memory.
    const auto& of = graph.type(base_value);
    const auto& seen = graph.type(value);
    const bool whole = seen.sizes == of.sizes && seen.strides == of.strides && seen.offset == of.offset;
    bool shares = false;
    for (size_t d = 0; d < of.dim(); ++d)
      shares |= graph.arena().is_const(of.strides[d], 0) && !graph.arena().is_const(of.sizes[d], 1);
    if (shares && THPVariable_Unpack(outputs_[output]).requires_grad() && !whole)
      throw Unsupported(Reason::UnsupportedTensor, "a view of an expanded tensor that requires a gradient is returned");
    views.push_back({output, base, of_input, *made});
  };
  for (uint32_t i = 0; i < count; ++i) {
    if (skipped(i)) continue;
    const at::Tensor& t = THPVariable_Unpack(outputs_[i]);
    auto self = by_fake_.count(outputs_[i]) ? inputs.find(t.unsafeGetTensorImpl()) : inputs.end();
    if (self != inputs.end() && t.requires_grad()) views.push_back({i, self->second, true, OutputView::Made::Plainly});
    if (!t.is_view() || is_of_custom_function(t)) continue;
    const c10::TensorImpl* base = t._base().unsafeGetTensorImpl();
    if (auto in = inputs.find(base); in != inputs.end())
      add(i, graph.inputs[in->second].value, in->second, true);
    else if (auto out = outputs.find(base); out != outputs.end())
      add(i, graph.outputs[out->second], out->second, false);
    else
      of_others[base].push_back(i);
  }
  for (uint32_t i = 0; i < count; ++i) {  // in the order of the outputs
    if (skipped(i) || !THPVariable_Unpack(outputs_[i]).is_view()) continue;
    at::Tensor base(THPVariable_Unpack(outputs_[i])._base());
    auto members = of_others.extract(base.unsafeGetTensorImpl());
    if (members.empty() || members.mapped().size() < 2) continue;
    if (functional::isFunctionalTensor(base)) functional::sync(base);
    FakeTensor* fake = unwrap_fake(base);
    if (!fake) continue;
    const graph::ValueId memory = memory_of_output(*fake, base);
    // Views of a detached tensor are no views of the one with a history, which is a result.
    bool detached = false;
    for (uint32_t k = 0; k < count && !base.requires_grad(); ++k)
      detached =
          detached || (!skipped(k) && graph.outputs[k] == memory && THPVariable_Unpack(outputs_[k]).requires_grad());
    if (detached) continue;
    auto at = static_cast<uint32_t>(graph.outputs.size());
    graph.outputs.push_back(memory);
    hidden_bases_.push_back(base);
    for (uint32_t member : members.mapped()) add(member, graph.outputs[at], at, false);
  }
  find_detached(graph, views);
  find_versions(graph, views);
  return views;
}

// Outputs that share their memory with inputs or others, but do not count writes with them.
void TracerImpl::find_versions(const graph::Graph& graph, std::vector<OutputView>& views) const {
  auto storage = [](const at::Tensor& t) { return t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr; };
  std::unordered_map<const void*, std::set<const void*>> counters;  // by memory
  std::set<const void*> of_inputs;
  for (const Lifted& l : lifted_) {
    const at::Tensor& t = THPVariable_Unpack(l.fake);
    if (t.is_inference()) continue;
    counters[storage(t)].insert(pytorch::version_counter(t));
    of_inputs.insert(pytorch::version_counter(t));
  }
  std::vector<uint32_t> known;
  for (uint32_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] == Py_None || !graph.outputs[i].valid()) continue;
    const at::Tensor& t = THPVariable_Unpack(outputs_[i]);
    if (t.is_inference() || !functional::isFunctionalTensor(t) || !storage(t)) continue;
    counters[storage(t)].insert(pytorch::version_counter(t));
    known.push_back(i);
  }
  std::unordered_map<const void*, uint32_t> first;
  for (uint32_t i : known)  // their counters stay, which their histories look at
    if (const at::Tensor& t = THPVariable_Unpack(outputs_[i]); t.requires_grad())
      first.emplace(pytorch::version_counter(t), i);
  for (uint32_t i : known) {
    const at::Tensor& t = THPVariable_Unpack(outputs_[i]);
    const void* counter = pytorch::version_counter(t);
    if (of_inputs.count(counter) || counters[storage(t)].size() < 2 || t.requires_grad()) continue;
    views.push_back({i, first.emplace(counter, i).first->second, false, OutputView::Made::WithVersionOf});
  }
}

// Outputs that are the same value as another one, but not the same tensor: of those at most one has a history.
void TracerImpl::find_detached(const graph::Graph& graph, std::vector<OutputView>& views) const {
  auto count = static_cast<uint32_t>(outputs_.size());
  std::vector<bool> is_view(graph.outputs.size());
  for (const OutputView& v : views) is_view[v.output] = true;
  std::vector<OutputView> apart;
  auto tensor = [&](uint32_t i) -> const at::Tensor& {
    return i < count ? THPVariable_Unpack(outputs_[i]) : hidden_bases_[i - count];
  };
  for (uint32_t i = 0; i < count; ++i) {
    if (!graph.outputs[i].valid() || is_view[i] || tensor(i).requires_grad()) continue;
    for (uint32_t j = 0; j < graph.outputs.size(); ++j) {
      if (graph.outputs[j] != graph.outputs[i] || is_view[j] || tensor(j).is_same(tensor(i))) continue;
      if (!tensor(j).requires_grad() && j < count && j > i) continue;
      apart.push_back({i, j, false, OutputView::Made::Apart});
      break;
    }
  }
  views.insert(views.begin(), apart.begin(), apart.end());  // they are no views, but have some
}

// What shares memory in the program shares it in the graph: with an input, or with another output.
void TracerImpl::check_aliases(const graph::Graph& graph) const {
  std::unordered_map<const c10::StorageImpl*, graph::ValueId> memory;
  for (const Lifted& l : lifted_) memory.emplace(l.storage, recorder_->slots[l.slot].value);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] == Py_None || !graph.outputs[i].valid()) continue;
    const at::Tensor& t = THPVariable_Unpack(outputs_[i]);
    if (!functional::isFunctionalTensor(t) || t.sym_numel().maybe_as_int() == 0) continue;
    graph::ValueId root = graph::memory_root(graph, graph.outputs[i]);
    if (memory.emplace(t.storage().unsafeGetStorageImpl(), root).first->second != root)
      throw Unsupported(
          Reason::UnsupportedMutation,
          "a result shares memory with an input or with another result by a view that is computed as a copy");
  }
}

// What nobody reads is called all the same where eager may refuse its arguments.
static void keep_unread(graph::Graph& graph, const std::vector<graph::NodeId>& typed_by_kernels) {
  if (typed_by_kernels.empty()) return;
  std::vector<bool> read(graph.values().size());
  auto mark = [&](graph::ValueId v) {
    if (v.valid()) read[v.index] = true;
  };
  std::ranges::for_each(graph.outputs, mark);
  for (const graph::Writeback& w : graph.writebacks) mark(w.value);
  auto next = typed_by_kernels.rbegin();
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    graph::Node& n = graph.node(graph::NodeId(static_cast<uint32_t>(i)));
    bool live = graph::traits_of(n) & graph::kEffect;
    for (graph::ValueId v : n.outputs) live = live || (v.valid() && read[v.index]);
    if (next != typed_by_kernels.rend() && next->index == i) {
      ++next;
      if (!live) {
        n.extern_name = graph::op_name(n.op);
        n.op = graph::Op::Extern;
        live = true;
      }
    }
    if (live || graph::may_raise(graph, n)) graph::Graph::for_each_operand(n, mark);
  }
}

// A torch.autograd.Function has gradients for what its forward does not read.
void TracerImpl::use_what_gradients_reach() {
  torch::autograd::edge_list starts;
  for (PyObject* o : outputs_)
    if (o != Py_None && THPVariable_Unpack(o).requires_grad())
      starts.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(o)));
  for (size_t i : written_with_history_)
    starts.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(lifted_[i].fake)));
  std::unordered_set<const torch::autograd::Node*> met;
  for (const NodePtr& node : reached(starts)) met.insert(node.get());
  for (const Lifted& l : lifted_)
    if (recorder_->slots[l.slot].real.requires_grad() && met.count(gradient_leaf(l).function.get()))
      recorder_->use_slot(l.slot);
}

Captured TracerImpl::finish(const std::vector<PyObject*>& outputs, std::vector<PyObject*>& inputs) {
  RecordingScope scope(recorder_.get());
  c10::AutoGradMode no_grad(false);
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset |
                                           c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) |
                                           c10::DispatchKeySet(c10::DispatchKey::Functionalize));
  for (PyObject* o : outputs) {
    Py_INCREF(o);
    outputs_.push_back(o);
  }
  // See pytorch/geometry.cpp.
  for (const at::Tensor& base : std::exchange(recorder_->reshaped, {}))
    if (base.requires_grad())
      throw Unsupported(Reason::UnsupportedMutation,
                        "a tensor got a history by a write after it, or a view of it, had changed its geometry");
  graph::Graph& graph = recorder_->graph();
  bool needs_grad = false;
  std::vector<uint32_t> write_counts;
  std::vector<OutputView> views;
  std::vector<LazyBits> lazy;
  try {
    write_counts = write_back_mutations(graph);
    for (PyObject* o : outputs) {
      graph.outputs.push_back(output_value(o, needs_grad));
      lazy.push_back(o == Py_None ? LazyBits() : lazy_bits(THPVariable_Unpack(o)));
    }
    needs_grad |= !written_with_history_.empty();
    if (needs_grad) use_what_gradients_reach();
    views = find_views(graph);
    check_aliases(graph);
  } catch (python_error& e) {  // a graph break met while views were replayed
    e.restore();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Reason reason = Reason::TraceFailed;
    std::string detail = e.what();
    is_graph_break_exception(value, &reason, &detail);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    throw Unsupported(reason, detail);
  } catch (const c10::Error& e) {
    throw Unsupported(Reason::TraceFailed, e.what_without_backtrace());
  }
  std::vector<PyObject*> constants;
  take_inputs(inputs, constants);
  hold_launches(graph, 0, constants);
  Captured captured{graph::Graph(graph.shared_arena()),
                    std::move(constants),
                    needs_grad,
                    std::move(write_counts),
                    {},
                    {},
                    {},
                    {},
                    std::move(views),
                    std::move(lazy)};
  inputs_ = inputs;
  finish_sizes(captured, graph);
  captured.graph = std::move(graph);
  recorder_->close();
  keep_unread(captured.graph, recorder_->typed_by_kernels);
  return captured;
}

}  // namespace braze::trace
