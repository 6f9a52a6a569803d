#include "driver/kept_results.h"

#include "autodiff/archive.h"
#include "base/build_id.h"
#include "base/check.h"
#include "codegen/codegen.h"
#include "codegen/disk_cache.h"
#include "codegen/distinct_kernels.h"
#include "codegen/warm_up.h"
#include "plan/archive.h"

namespace braze::driver {

namespace {

constexpr const char* kFormat = "result 1";

// The generators that may write code for the targets, by their fingerprints. nullopt: one of them is not here, and the
// stages are to say so.
std::optional<std::string> generators(const Options& options, const Targets& targets) {
  std::string out = targets.cpu.text() + "\n" + codegen::cpu_generator(targets.cpu).fingerprint() + "\n";
  if (options.codegen == Codegen::Cpp) out += codegen::cpp_generator(targets.cpu).fingerprint() + "\n";
  for (const auto& [number, target] : targets.gpus) {
    if (!target.unavailable.empty()) return std::nullopt;
    try {
      out += std::to_string(number) + " " + codegen::nvptx_generator(target).fingerprint() + "\n";
    } catch (const Unsupported&) {
      return std::nullopt;
    }
    if (options.codegen == Codegen::Triton) out += codegen::triton_generator(target).fingerprint() + "\n";
  }
  return out;
}

}  // namespace

KeptResult::KeptResult(const graph::Graph& graph, const Options& options, const Targets& targets, std::string_view more)
    : graph_(graph) {
  // Without a build-id results of another build could not be told from ours.
  if (build_id().empty()) return;
  auto made_by = generators(options, targets);
  if (!made_by) return;
  sym::Packer key(graph.arena(), symbols_);
  key(std::string(kFormat), *made_by, std::string(more));
  ByteWriter chosen;
  braze::describe(options, chosen);
  key(chosen.take());
  graph::pack(key, graph);
  ByteWriter symbols;
  symbols_.describe(graph.arena(), symbols);
  key_ = key.take() + symbols.take();
  name_ = codegen::symbol_of("result", key_);
}

bool KeptResult::find(const std::function<void(sym::Unpacker&)>& read) const {
  if (name_.empty()) return false;
  codegen::DiskCache cache;
  auto bytes = cache.find(name_, key_);
  if (!bytes) return false;
  try {
    sym::Unpacker in(*bytes, graph_.arena(), symbols_.list());
    read(in);
    in.finish();
  } catch (const std::exception&) {
    return false;
  }
  codegen::note_programs(cache);
  return true;
}

void KeptResult::keep(const std::function<void(sym::Packer&)>& write) const {
  if (name_.empty()) return;
  sym::Packer out(graph_.arena(), symbols_.list());
  try {
    write(out);
  } catch (const sym::UnknownSymbol&) {
    return;
  }
  codegen::DiskCache().keep(name_, key_, out.take());
}

void pack(sym::Packer& out, const Artefact& made) {
  const auto& [plan, timings, nests, kernels, externs, from_disk_cache, tuned] = made;
  plan::pack(out, plan);
  out(nests, kernels, externs);
}

void pack(sym::Packer& out, const Training& made) {
  const auto& [parts, forward] = made;
  autodiff::pack(out, parts);
  pack(out, forward);
}

void unpack(sym::Unpacker& in, const graph::Graph& graph, Artefact& made) {
  made.plan = plan::unpack(in, graph.shared_arena());
  in(made.nests, made.kernels, made.externs);
  if (made.plan.inputs != graph.inputs.size() || made.plan.outputs.size() != graph.outputs.size())
    damaged("a plan of another graph");
  made.from_disk_cache = true;
}

void unpack(sym::Unpacker& in, const autodiff::Joint& joint, Training& made) {
  made.parts = autodiff::unpack(in, joint);
  unpack(in, made.parts.forward, made.forward);
}

std::string describe(const autodiff::Joint& joint) {
  ByteWriter out;
  auto numbers = [&](const std::vector<uint32_t>& list) {
    out.number(list.size());
    for (uint32_t n : list) out.number(n);
  };
  out.text("joint");
  out.number(joint.outputs);
  numbers(joint.tangents);
  out.number(joint.reads.has_value());
  if (joint.reads) numbers(joint.reads->inputs), numbers(joint.reads->outputs);
  return out.take();
}

}  // namespace braze::driver
