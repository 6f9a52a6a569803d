// How kernels are named, and which launches share one.
#pragma once
#include <string>
#include <unordered_map>

#include "codegen/codegen.h"
#include "codegen/signature.h"

namespace braze::codegen {

// The symbol of a kernel: a hash of 128 bits of what it is made for (`fingerprint`) and from (`key`).
std::string symbol_of(const std::string& fingerprint, const std::string& key);

// The kernels of one compilation: launches with equal keys share one.
class DistinctKernels {
 public:
  DistinctKernels(Compiled& out, std::string fingerprint) : out_(out), fingerprint_(std::move(fingerprint)) {}
  // Notes the next launch of so many nests, with its arguments. Its kernel if it is the first of its key, named and
  // without code, valid until the next call; nullptr: an earlier launch's serves it.
  CompiledKernel* add(const Signature& signature, const std::string& key, sym::Expr blocks, uint32_t nests = 1);

 private:
  Compiled& out_;
  std::string fingerprint_;
  std::unordered_map<std::string, uint32_t> by_key_;
};

}  // namespace braze::codegen
