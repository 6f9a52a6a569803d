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

CompiledKernel* DistinctKernels::add(const Signature& signature, const std::string& key) {
  auto [it, fresh] = by_key_.try_emplace(key, static_cast<uint32_t>(out_.kernels.size()));
  out_.kernel_of.push_back(it->second);
  out_.buffers_of.push_back(signature.buffers);
  out_.sizes_of.push_back(signature.sizes);
  if (!fresh) return nullptr;
  CompiledKernel& k = out_.kernels.emplace_back();
  k.symbol = symbol_of(fingerprint_, key);
  k.buffers = signature.buffers;
  k.sizes = signature.sizes;
  k.blob = it->second;
  return &k;
}

}  // namespace braze::codegen
