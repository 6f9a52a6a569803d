#include "launch/region_node.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "launch/gil.h"
#include "launch/warn_once.h"
#include "runtime/heap.h"
#include "runtime/pool.h"
#include "trace/pytorch/autograd_node.h"
#include "trace/pytorch/dual_number.h"

namespace braze::launch {
namespace {

using autodiff::Source;
using torch::autograd::variable_list;
using InputKind = TrainingProgram::InputSource::Kind;

constexpr size_t kWorthGivingBack = size_t{32} << 20;

// Below a transform of functions, a dual number, or of a class that handles operators itself: PyTorch's operators know
// what to do with it, compiled code does not.
bool is_transformed(const at::Tensor& t) {
  if (!t.defined()) return false;
  return !t.has_storage() || t.key_set().has_any(c10::python_ks) || pytorch::has_tangent(t.unsafeGetTensorImpl());
}

std::string describe(const at::Tensor& t) {
  std::string out = t.toString() + " [";
  for (int64_t d = 0; d < t.dim(); ++d) out += (d ? ", " : "") + std::to_string(t.size(d));
  return out + "]";
}

uint32_t version_of(const at::Tensor& t) {
  return t.is_inference() ? 0 : t.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

RegionCall::RegionCall(std::shared_ptr<TrainingProgram> program)
    : program_(std::move(program)), spent_(program_->gradients.tangent_of.size()) {
  saved_.reserve(program_->saved.size());
  held_.resize(program_->input_sources.size());
}

std::string RegionCall::Version::text() const {
  return "[" + what + "] is at version " + std::to_string(counter.current_version()) + "; expected version " +
         std::to_string(expected) + " instead.";
}

void RegionCall::watch(const at::Tensor& t) {
  if (t.is_inference()) return;
  watched_.push_back({t.unsafeGetTensorImpl()->version_counter(), version_of(t),
                      t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr, describe(t)});
}

void RegionCall::hold_input(uint32_t i, const at::Tensor& t) {
  HeldInput& held = held_[i];
  switch (program_->input_sources[i].kind) {
    case InputKind::Saved: return;
    case InputKind::Snapshot: held.tensor = t; break;
    // A leaf that requires grad never gets a history; another could get one that leads here, and then would hold
    // itself.
    case InputKind::Kept: held.tensor = t.requires_grad() && t.is_leaf() ? t : pytorch::without_history(t); break;
    case InputKind::Unneeded: held.weak = t.getIntrusivePtr(); break;
  }
  held.version = version_of(t);
}

void RegionCall::release() {
  auto lock = lock_without_gil(mutex_);
  const std::vector<bool> needed = still_needed();
  for (size_t i = 0; i < used_.size(); ++i)
    if (used_[i] && !needed[i]) drop(i);
  if (!std::all_of(spent_.begin(), spent_.end(), [](bool s) { return s; })) return;
  held_.assign(held_.size(), {});
  drawn.clear();
  held_dropped_ = true;
}

// What eager would refuse.
void RegionCall::check_kept(uint32_t i) const {
  if (dropped_[i]) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
}

void RegionCall::check_not_freed(const std::vector<bool>& given) const {
  const std::vector<std::vector<bool>>& shared = program_->gradients.shared;
  for (size_t t = 0; t < shared.size(); ++t)
    for (size_t u = 0; given[t] && u < shared.size(); ++u)
      if (spent_[u] && shared[t][u]) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
}

std::vector<bool> RegionCall::still_needed() const {
  const std::vector<std::vector<bool>>& shared = program_->gradients.shared;
  std::vector<bool> needed(saved_.size());
  for (size_t t = 0; t < shared.size(); ++t) {
    bool freed = false;
    for (size_t u = 0; u < shared.size(); ++u) freed = freed || (spent_[u] && (u == t || shared[t][u]));
    if (freed) continue;
    std::vector<bool> alone(shared.size());
    alone[t] = true;
    for (uint32_t i : program_->reads(alone)) needed[i] = true;
  }
  return needed;
}

void RegionCall::check_versions(const std::vector<at::Tensor>* read) const {
  auto is_read = [&](const Version& v) {
    return !read || std::any_of(read->begin(), read->end(), [&](const at::Tensor& t) {
      return t.has_storage() && t.storage().unsafeGetStorageImpl() == v.storage;
    });
  };
  for (const Version& v : watched_)
    if (v.changed() && is_read(v))
      throw std::runtime_error(
          "one of the variables needed for gradient computation has been modified by an inplace operation: " +
          v.text());
}

variable_list RegionCall::backward(variable_list&& tangents, const Edges& edges, bool releasing) {
  auto lock = lock_without_gil(mutex_);
  std::vector<bool> given;
  for (at::Tensor& t : tangents) {
    given.push_back(t.defined());
    if (t.defined() && t._is_zerotensor()) t = t.clone();  // which gives it memory
  }
  // The engine visits what it has no gradient for, too.
  if (std::ranges::none_of(given, [](bool g) { return g; })) return variable_list(program_->gradients.inputs.size());
  check_not_freed(given);
  for (size_t t = 0; t < given.size(); ++t) spent_[t] = spent_[t] || (releasing && given[t]);
  if (c10::GradMode::is_enabled() || std::any_of(tangents.begin(), tangents.end(), is_transformed))
    return uncompiled_backward(tangents, edges, given);
  const CompiledBackward* compiled = nullptr;
  try {
    compiled = &program_->backward(given);
  } catch (const Unsupported& e) {
    warn_once(std::string("braze: the backward of a compiled region runs uncompiled: ") + e.what());
    return uncompiled_backward(tangents, edges, given);
  }
  const CompiledBackward& backward = *compiled;
  for (const CompiledBackward::Input& in : backward.inputs)
    if (in.kind == Source::Kind::Input || in.kind == Source::Kind::Saved) check_kept(in.index);
  const bool from_all = std::all_of(given.begin(), given.end(), [](bool g) { return g; });
  if (from_all) check_versions();
  const std::vector<bool> needed = releasing && !from_all ? still_needed() : std::vector<bool>(saved_.size());
  std::vector<at::Tensor> owned(backward.inputs.size()), read;
  CompiledGraph::Call call;
  call.inputs.resize(owned.size(), nullptr);
  for (size_t i = 0; i < owned.size(); ++i) {
    const CompiledBackward::Input& in = backward.inputs[i];
    if (in.kind == Source::Kind::Constant) continue;
    if (in.kind == Source::Kind::Tangent) {
      BRAZE_CHECK(tangents[in.index].defined(), "a backward reads the gradient of a result that has none");
      owned[i] = std::move(tangents[in.index]);
    } else {
      owned[i] = saved_[in.index].unpack();
      if (!from_all) read.push_back(owned[i]);
      if (releasing && !needed[in.index]) drop(in.index);
      used_[in.index] = true;
    }
    call.inputs[i] = &owned[i];
  }
  // Not the tangents: theirs may be where memory was that is gone.
  if (!from_all) check_versions(&read);
  read.clear();
  call.owned = owned.data();
  if (!releasing) call.owned = nullptr;
  call.symbols = symbols.data();
  if (replayed)
    backward.replayed->run(call);
  else
    backward.graph->run(call);
  if (!backward.ran.exchange(true)) {
    runtime::trim_heap(kWorthGivingBack);
    runtime::trim_pool();
  }
  variable_list out(program_->gradients.inputs.size());
  for (size_t k = 0; k < out.size(); ++k) out[k] = std::move(call.results[k]);
  return out;
}

// The region again, eagerly, on the inputs that it was called with, so that what it gives has a history of its own.
variable_list RegionCall::uncompiled_backward(const variable_list& tangents, const Edges& edges,
                                              const std::vector<bool>& given) {
  const std::vector<uint32_t>& reads = program_->reads(given);
  for (uint32_t i : reads) {
    check_kept(i);
    used_[i] = true;
  }
  check_versions();
  UncompiledRegion::Call call;
  call.inputs = region_inputs(!reads.empty());
  call.edges = edges();
  call.symbols.assign(symbols.begin(),
                      symbols.begin() + static_cast<int64_t>(program_->forward->plan().size_symbols.size()));
  call.random_state = random_state;
  call.drawn = drawn;
  return program_->uncompiled->gradients(call, tangents, c10::GradMode::is_enabled());
}

// `needed`: the gradients are functions of them.
variable_list RegionCall::region_inputs(bool needed) {
  variable_list inputs(held_.size());
  for (uint32_t i = 0; i < held_.size(); ++i) {
    const TrainingProgram::InputSource& source = program_->input_sources[i];
    const HeldInput& held = held_[i];
    switch (source.kind) {
      case InputKind::Saved:
        if (!dropped_[source.index]) inputs[i] = pytorch::without_history(saved_[source.index].unpack());
        break;
      case InputKind::Unneeded:
        if (auto alive = held.weak ? held.weak->lock() : nullptr;
            alive && version_of(at::Tensor(alive)) == held.version)
          inputs[i] = pytorch::without_history(at::Tensor(std::move(alive)));
        break;
      case InputKind::Kept:
        if (needed && held.tensor.defined() && version_of(held.tensor) != held.version)
          throw std::runtime_error("braze: an input of a compiled region, " + describe(held.tensor) +
                                   ", has been modified by an inplace operation, and the region is differentiated with "
                                   "create_graph=True or batched gradients, for which "
                                   "it has to be as it was");
        [[fallthrough]];
      case InputKind::Snapshot:
        if (held.tensor.defined()) inputs[i] = pytorch::without_history(held.tensor);
        break;
    }
    if (needed && !inputs[i].defined() && source.kind != InputKind::Unneeded)
      throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
  }
  return inputs;
}

// ---- the nodes ----

CompiledFunctionBackward::CompiledFunctionBackward(std::shared_ptr<RegionCall> call, std::vector<uint32_t> tangents,
                                                   std::vector<uint32_t> gradients, torch::autograd::edge_list&& edges)
    : Node(std::move(edges)), call_(std::move(call)), tangents_(std::move(tangents)), gradients_(std::move(gradients)) {
  BRAZE_CHECK(gradients_.size() == num_outputs(), "an edge for each gradient");
}

void CompiledFunctionBackward::release_variables() {
  releasing_ = false;
  call_->release();
}

variable_list CompiledFunctionBackward::apply(variable_list&& given) {
  const trace::Gradients& g = call_->program()->gradients;
  variable_list tangents(g.tangent_of.size());
  for (size_t t = 0; t < tangents_.size(); ++t) tangents[tangents_[t]] = std::move(given[t]);
  auto edges = [&] {
    torch::autograd::edge_list out(g.inputs.size());
    for (uint32_t k = 0; k < gradients_.size(); ++k) out[gradients_[k]] = next_edge(k);
    return out;
  };
  variable_list all = call_->backward(std::move(tangents), edges, releasing_), out;
  out.reserve(gradients_.size());
  for (uint32_t k : gradients_) out.push_back(std::move(all[k]));
  return out;
}

}  // namespace braze::launch
