#include "codegen/distinct_kernels.h"

#include <cstdio>

#include "base/hash.h"

namespace braze::codegen {

std::string symbol_of(const std::string& fingerprint, const std::string& key) {
  Hasher low, high;
  low.add(fingerprint), low.add(key);
  high.add(1), high.add(fingerprint), high.add(key);
  char text[2 * 16 + 1];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(low.value()),
                static_cast<unsigned long long>(high.value()));
  return std::string("braze_") + text;
}

std::vector<Run> one_by_one(const std::vector<const loop::Nest*>& nests) {
  std::vector<Run> runs;
  for (const loop::Nest* n : nests) runs.push_back({n});
  return runs;
}

CompiledKernel* DistinctKernels::add(const Signature& signature, const std::string& key, sym::Expr blocks,
                                     uint32_t nests) {
  auto [it, fresh] = by_key_.try_emplace(key, static_cast<uint32_t>(out_.kernels.size()));
  out_.launches.push_back({nests, it->second, signature.buffers, signature.sizes, blocks});
  if (!fresh) return nullptr;
  CompiledKernel& k = out_.kernels.emplace_back();
  k.symbol = symbol_of(fingerprint_, key);
  k.buffers = signature.buffers;
  k.sizes = signature.sizes;
  k.blob = it->second;
  return &k;
}

}  // namespace braze::codegen
