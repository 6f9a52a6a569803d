// options={"autotune_seconds": n}: the products of a program that kernels of templates may compute, too, with the nests
// around them.
//
// Such a product is a call of the library on a GPU (mm, bmm, addmm, baddbmm, or addmm with an activation), of bf16 or
// f16 and of known sizes. The nest that first reads it is part of it, if that reads it element by element in its order;
// so is a nest that makes a factor from less memory (weights of 8 bits), where it is small work. The program stays as
// it is: these are other ways to carry out some of its items.
#pragma once
#include <memory>
#include <vector>

#include "codegen/triton/product.h"
#include "graph/targets.h"
#include "schedule/memory.h"

namespace braze::driver {

struct FoundProduct {
  std::vector<size_t> items;                  // that a kernel stands for, in order; it runs in the place of the last
  size_t call = 0;                            // which of them is the call
  std::vector<loop::BufferId> reads, writes;  // of the kernels
  codegen::triton::Product product;
  std::shared_ptr<const loop::Program> own;  // Product::own
  const Target* target = nullptr;
};

std::vector<FoundProduct> find_products(const loop::Program& program, const Targets& targets);

// What their kernels read stays until after the last of their items.
std::vector<schedule::Use> uses_of(const std::vector<FoundProduct>& products);

// Per item of the program: whether it is one of theirs. Empty: none is.
std::vector<bool> items_of(const std::vector<FoundProduct>& products, const loop::Program& program);

// Without those whose kernels would read what something writes between the first and the last of their items, or what
// they write themselves.
std::vector<FoundProduct> safe(std::vector<FoundProduct> products, const loop::Program& program,
                               const schedule::MemoryPlan& memory);

}  // namespace braze::driver
