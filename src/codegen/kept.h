// Code generators, one for each target: made when first asked for, kept for the life of the process.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/fork_mutex.h"
#include "codegen/codegen.h"

namespace braze::codegen {

// Thread-safe. What the constructor throws comes through.
template <class Generator>
CodeGenerator& kept_generator(const Target& target) {
  static auto* mutex = new ForkMutex;
  static auto* generators = new std::map<std::string, std::unique_ptr<Generator>>;
  std::lock_guard lock(*mutex);
  auto& g = (*generators)[target.text()];
  if (!g) g = std::make_unique<Generator>(target);
  return *g;
}

}  // namespace braze::codegen
