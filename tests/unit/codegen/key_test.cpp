// A kernel's key must tell apart whatever the emitted code depends on, and nothing else.
#include "codegen/signature.h"

#include <gtest/gtest.h>

#include "base/build_id.h"
#include "base/check.h"
#include "codegen/codegen.h"

namespace braze::codegen::cpu {
namespace {

using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;

const char* kPointwise = R"(program
symbol s0 size [2, 100000] = input 0 dim 0
buffer %0 "x" f32 cpu input 0 sizes [s0, 64] strides [64, 1]
buffer %1 "b" f32 cpu input 1 sizes [64] strides [1]
buffer %2 "y" f32 cpu input 2 sizes [s0, 64] strides [64, 1]
buffer %3 "o" f32 cpu output sizes [s0, 64] strides [64, 1]
nest "n" outer [i0: s0, i1: 64] vector outer tile 0 grain 8 locs [] {
  stage [] {
    v0 = load f32 %0[i1 + 64*i0]
    v1 = load f32 %1[i1]
    v2 = load f32 %2[i1 + 64*i0]
    v3 = sub f32 v0, v1
    v4 = const f32 0.5
    v5 = mul f32 v3, v4
    v6 = add f32 v5, v2
    v7 = index i64 (i0)
    v8 = cast f32 v7
    v9 = max f32 v6, v8
    store %3[i1 + 64*i0] = v9
  }
}
output view %3 f32 sizes [s0, 64] strides [64, 1] offset 0
)";

const char* kTransposed = R"(program
buffer %0 "x" f32 cpu input 0 sizes [96, 64] strides [64, 1]
buffer %1 "o" f32 cpu output sizes [64, 96] strides [96, 1]
nest "n" outer [i0: 64, i1: 96] vector outer tile 16 grain 8 locs [] {
  stage [] {
    v0 = load f32 %0[i0 + 64*i1]
    v1 = exp f32 v0
    store %1[i1 + 96*i0] = v1
  }
}
output view %1 f32 sizes [64, 96] strides [96, 1] offset 0
)";

const char* kRows = R"(program
buffer %0 "x" f32 cpu input 0 sizes [32, 100] strides [100, 1]
buffer %1 "t" f32 cpu local sizes [100] strides [1]
buffer %2 "o" f32 cpu output sizes [32, 100] strides [100, 1]
nest "n" outer [i0: 32] vector inner tile 0 grain 8 locs [] {
  stage [r0: 100] {
    v0 = load f32 %0[r0 + 100*i0]
    store %1[r0] = v0
    v1 = reduce f32 sum v0
  }
  stage [r1: 100] {
    v2 = load f32 %1[r1]
    v3 = sub f32 v2, v1
    store %2[r1 + 100*i0] = v3
  }
}
output view %2 f32 sizes [32, 100] strides [100, 1] offset 0
)";

const char* kGather = R"(program
buffer %0 "k" i64 cpu input 0 sizes [50] strides [1]
buffer %1 "w" f32 cpu input 1 sizes [1000, 64] strides [64, 1]
buffer %2 "o" f32 cpu output sizes [50, 64] strides [64, 1]
nest "n" outer [i0: 50, i1: 64] vector outer tile 0 grain 8 locs [] {
  stage [] {
    v0 = load i64 %0[i0]
    indirect x0 = v0 bound 1000
    v1 = load f32 %1[i1 + 64*x0]
    store %2[i1 + 64*i0] = v1
  }
}
output view %2 f32 sizes [50, 64] strides [64, 1] offset 0
)";

const char* kPrograms[] = {kPointwise, kTransposed, kRows, kGather};

Nest& nest_of(Program& p) { return std::get<Nest>(p.items[0]); }

std::string key_of(Program& p) { return signature_of(p, nest_of(p)).key; }

// LLVM's text of the kernel; empty where the mutated nest makes no sense.
std::string code_of(Program& p) {
  try {
    loop::verify(p);
    return cpu_generator().source(p, {&nest_of(p)}, Options());
  } catch (const std::exception&) {
    return {};
  }
}

class Mutations {
 public:
  explicit Mutations(const char* text)
      : text_(text), program_(loop::parse(text)), key_(key_of(program_)), code_(code_of(program_)) {
    EXPECT_FALSE(code_.empty());
  }

  // Applies `change` to a fresh copy; false: there was nothing to change.
  template <class Change>
  void try_one(const std::string& what, Change&& change) {
    Program p = loop::parse(text_);
    if (!change(p)) return;
    std::string key, code;
    try {
      key = key_of(p);
    } catch (const InternalError&) {
      return;  // a symbol without an axis
    }
    code = code_of(p);
    ++tried_;
    if (code.empty() || code == code_) return;
    ++different_;
    EXPECT_NE(key, key_) << what << " changes the code of\n" << text_;
  }

  void all() {
    each_op();
    Nest& n = nest_of(program_);
    for (size_t a = 0; a < n.outer.size(); ++a)
      try_one("extent of axis " + std::to_string(a), [&](Program& p) {
        auto& axis = nest_of(p).outer[a];
        axis.extent = p.arena->add(axis.extent, p.arena->constant(16));
        return true;
      });
    for (size_t s = 0; s < n.stages.size(); ++s)
      for (size_t a = 0; a < n.stages[s].axes.size(); ++a)
        try_one("extent of a stage's axis", [&](Program& p) {
          auto& axis = nest_of(p).stages[s].axes[a];
          axis.extent = p.arena->add(axis.extent, p.arena->constant(16));
          return true;
        });
    using Vector = loop::Mapping::Vector;
    for (Vector v : {Vector::None, Vector::Outer, Vector::Inner})
      try_one("vector", [&](Program& p) { return nest_of(p).mapping.vector = v, true; });
    for (int tile : {0, 8, 16, 32}) try_one("tile", [&](Program& p) { return nest_of(p).mapping.tile = tile, true; });
    try_one("grain", [](Program& p) { return nest_of(p).mapping.grain = 77, true; });
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      loop::BufferId id(b);
      for (DType d : {DType::F32, DType::F64, DType::I64, DType::I32, DType::BF16, DType::F16, DType::U8, DType::Bool})
        try_one("dtype of buffer " + std::to_string(b), [&](Program& p) { return p.buffers[id].dtype = d, true; });
      for (auto kind :
           {loop::BufferKind::Input, loop::BufferKind::Temp, loop::BufferKind::Output, loop::BufferKind::Local})
        try_one("kind of buffer " + std::to_string(b), [&](Program& p) { return p.buffers[id].kind = kind, true; });
      try_one("size of buffer " + std::to_string(b), [&](Program& p) {
        for (auto& s : p.buffers[id].sizes) s = p.arena->mul(s, p.arena->constant(2));
        return true;
      });
    }
    for (auto range :
         {sym::Range{0, 5}, sym::Range{0, int64_t{1} << 40}, sym::Range{-(int64_t{1} << 40), int64_t{1} << 40}})
      for (const char* name : {"s0", "i0", "i1", "r0", "r1", "x0"})
        try_one(std::string("range of ") + name, [&](Program& p) {
          auto symbol = p.arena->find_symbol(name);
          if (symbol) p.arena->set_range(*symbol, range);
          return symbol.has_value();
        });
    EXPECT_GT(different_, 10u) << "of " << tried_;
  }

 private:
  template <class Change>
  void on_op(const std::string& what, size_t s, size_t o, Change&& change) {
    try_one(what + " of op " + std::to_string(o) + " of stage " + std::to_string(s), [&](Program& p) {
      change(p, nest_of(p).stages[s].ops[o]);
      return true;
    });
  }

  void each_op() {
    Nest& n = nest_of(program_);
    for (size_t s = 0; s < n.stages.size(); ++s)
      for (size_t o = 0; o < n.stages[s].ops.size(); ++o) {
        const LoopOp& op = n.stages[s].ops[o];
        for (OpCode c : {OpCode::Add, OpCode::Sub, OpCode::Mul, OpCode::Max, OpCode::Exp, OpCode::Sqrt, OpCode::Neg})
          on_op("code", s, o, [&](Program&, LoopOp& m) { m.code = c; });
        for (DType d : {DType::F32, DType::F64, DType::I64, DType::I32, DType::Bool})
          on_op("dtype", s, o, [&](Program&, LoopOp& m) { m.dtype = d; });
        on_op("order of arguments", s, o, [](Program&, LoopOp& m) {
          if (m.args[1].valid()) std::swap(m.args[0], m.args[1]);
        });
        for (size_t a = 0; a < 3; ++a)
          for (uint32_t v = 0; op.args[a].valid() && v < op.args[a].index; ++v)
            on_op("argument", s, o, [&](Program&, LoopOp& m) { m.args[a] = loop::ValId(v); });
        if (op.code == OpCode::Load || op.code == OpCode::Store) {
          for (size_t b = 0; b < program_.buffers.size(); ++b)
            on_op("buffer", s, o, [&](Program&, LoopOp& m) { m.buffer = loop::BufferId(b); });
          on_op("offset", s, o, [](Program& p, LoopOp& m) { m.index = p.arena->add(m.index, p.arena->constant(16)); });
          on_op("stride", s, o, [](Program& p, LoopOp& m) { m.index = p.arena->mul(m.index, p.arena->constant(2)); });
          on_op("place", s, o, [](Program& p, LoopOp& m) { m.index = p.arena->constant(3); });
        }
        if (op.code == OpCode::Store)
          on_op("accumulation", s, o, [](Program&, LoopOp& m) { m.atomic_add = !m.atomic_add; });
        if (op.code == OpCode::Index)
          on_op("index", s, o, [](Program& p, LoopOp& m) { m.index = p.arena->add(m.index, p.arena->constant(1)); });
        if (op.code == OpCode::Const)
          for (double d : {0.25, 0.0, -0.0, 1e300}) on_op("constant", s, o, [&](Program&, LoopOp& m) { m.number = d; });
        if (op.code == OpCode::Reduce)
          for (auto k : {loop::ReduceKind::Prod, loop::ReduceKind::Max, loop::ReduceKind::WelfordMean,
                         loop::ReduceKind::WelfordM2, loop::ReduceKind::ExpSum})
            on_op("reduction", s, o, [&](Program&, LoopOp& m) { m.reduce = k; });
        if (op.code == OpCode::Indirect) {
          on_op("bound", s, o, [](Program& p, LoopOp& m) { m.bound = p.arena->constant(999); });
          on_op("fault", s, o, [](Program&, LoopOp& m) { m.check.fault = loop::Fault::Gather; });
          on_op("dimension", s, o, [](Program&, LoopOp& m) { m.check.dim += 1; });
          on_op("wrapping", s, o, [](Program&, LoopOp& m) { m.check.wrap = !m.check.wrap; });
        }
      }
  }

  std::string text_;
  Program program_;
  std::string key_, code_;
  size_t tried_ = 0, different_ = 0;
};

TEST(Key, DiffersWhereTheCodeDiffers) {
  for (const char* text : kPrograms) Mutations(text).all();
}

TEST(Key, AliasedBuffersAreAnotherKernel) {
  Program p = loop::parse(kPointwise);
  std::string apart = key_of(p);
  nest_of(p).stages[0].ops[2].buffer = loop::BufferId(size_t{0});
  EXPECT_NE(key_of(p), apart);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(Key, DtypesAreAnotherKernel) {
  for (const char* text : kPrograms) {
    Program p = loop::parse(text), q = loop::parse(replaced(text, "f32", "f64"));
    EXPECT_NE(key_of(p), key_of(q));
  }
}

TEST(Key, SaysNothingAboutNamesAndNumbers) {
  Program p = loop::parse(kPointwise);
  std::string text = replaced(kPointwise, "i1", "i7");
  text = replaced(text, "nest \"n\"", "nest \"another\"");
  text = replaced(text, "s0", "s5");
  text = replaced(text, "v0", "v10");
  Program q = loop::parse(text);
  EXPECT_EQ(key_of(p), key_of(q));
}

TEST(Key, FingerprintNamesTheBuild) {
  ASSERT_FALSE(build_id().empty());
  EXPECT_NE(cpu_generator().fingerprint().find(build_id()), std::string::npos);
}

}  // namespace
}  // namespace braze::codegen::cpu
