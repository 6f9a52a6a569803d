// Attention with functions of its scores as kernels in Triton's language: forward with an online softmax over blocks of
// keys, and the two halves of the backward, which compute the scores again.
//
// `num`, `idx` lists say which blocks of keys (of queries, in backward_key) a block of queries (of keys) meets, as a
// BlockMask has them; `full` ones need no mask. Statistics are in base 2. A query that no key is kept for gives zeros.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "codegen/triton/compiler.h"
#include "loop/loop.h"

namespace braze::codegen::triton {

// A function of the scores: a program of one nest over batch, heads, queries and keys, whose inputs are the scores, the
// gradients of what is made of them, and operands. nullptr: the scores (or gradients) themselves.
struct ScorePrograms {
  const loop::Program *scored = nullptr, *kept = nullptr, *gradient = nullptr;
  std::array<sym::Expr, 4> sizes;  // as in the programs: constants, or symbols called B, H, M and N
};

struct AttentionKernel {
  DType dtype = DType::F16;                      // of queries, keys and values: f16, bf16, f32
  int key_dim = 64, value_dim = 64;              // elements of a query or key, and of a value
  int group = 1;                                 // heads of queries for each head of keys
  int64_t q_block = 0, kv_block = 0;             // of the lists
  bool lists = false, full_lists = false;        // without lists, all blocks are met
  bool even_queries = false, even_keys = false;  // no block ends beyond the last one
  bool aligned = true;                           // tensors and their strides are multiples of 16
  bool tf32 = false;                             // products of f32
  std::vector<DType> operands;
  int sm = 90;
};

enum class Role : uint8_t {  // of a kernel's parameter
  Query,
  Key,
  Value,
  Out,
  Lse,
  Max,
  GradOut,
  GradLse,
  Delta,
  GradQuery,
  GradKey,
  GradValue,
  Num,
  Idx,
  FullNum,
  FullIdx,
  Operand,  // `index`: which
  Stride,   // `of` which tensor; `index`: dimension
  Batch,
  Heads,
  Queries,
  Keys,
  Scale,
  ListBatch,
  ListHead,  // strides of Num and FullNum, in rows
  ListColumns,
  FullColumns,  // of a row of Idx, FullIdx
  Error
};
struct Parameter;

struct AttentionSource {
  Source source;
  std::vector<std::array<int, 3>> roles;  // per argument: the Role, its index, the Role of whose tensor
  int rows = 64;  // queries (keys, in backward_key) of a program; programs run over them fastest
};

// Throws Inexpressible where a function of the scores is more than Triton can say.
AttentionSource attention_forward(const AttentionKernel& kernel, const ScorePrograms& scores);
AttentionSource attention_delta(const AttentionKernel& kernel, bool grad_lse);
AttentionSource attention_backward_query(const AttentionKernel& kernel, const ScorePrograms& scores);
AttentionSource attention_backward_key(const AttentionKernel& kernel, const ScorePrograms& scores);

}  // namespace braze::codegen::triton
