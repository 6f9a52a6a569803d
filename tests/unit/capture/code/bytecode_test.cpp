// Bytecode as the evaluator reads it: the same for every version of CPython.
#include "capture/code/bytecode.h"

#include <algorithm>

#include "../interpreter.h"

namespace braze::capture {
namespace {

const Bytecode& decoded(const std::string& source, const std::string& name = "f") {
  Ref function = evaluate(name, source);
  return decode(code_of(function.get()));
}

size_t count(const Bytecode& code, Opcode op) {
  return static_cast<size_t>(std::count_if(code.instructions.begin(), code.instructions.end(),
                                           [&](const Instruction& i) { return i.op == op; }));
}

const Instruction& first(const Bytecode& code, Opcode op) {
  auto it = std::find_if(code.instructions.begin(), code.instructions.end(),
                         [&](const Instruction& i) { return i.op == op; });
  EXPECT_NE(it, code.instructions.end());
  return *it;
}

TEST(Bytecode, ReturnsWhatItComputes) {
  const Bytecode& code = decoded("def f(x, y):\n  return x + y\n");
  EXPECT_EQ(code.num_locals_plus, 2);
  EXPECT_EQ(count(code, Opcode::BinaryOp), 1u);
  EXPECT_EQ(count(code, Opcode::ReturnValue), 1u);
  EXPECT_EQ(first(code, Opcode::BinaryOp).arg, 0);  // NB_ADD
  EXPECT_EQ(first(code, Opcode::BinaryOp).line, 2);
}

TEST(Bytecode, IsDecodedOnce) {
  Ref f = evaluate("f", "def f(x):\n  return x\n");
  EXPECT_EQ(&decode(code_of(f.get())), &decode(code_of(f.get())));
}

TEST(Bytecode, JumpsLeadToInstructions) {
  const Bytecode& code =
      decoded("def f(x, n):\n  for i in range(n):\n    if i > 3:\n      x += i\n    else:\n      x -= i\n  return x\n");
  for (const Instruction& i : code.instructions) EXPECT_LT(i.target, static_cast<int>(code.instructions.size()));
  const Instruction& loop = first(code, Opcode::ForIter);
  ASSERT_GE(loop.target, 0);
  EXPECT_GT(loop.target, &loop - code.instructions.data());
}

TEST(Bytecode, OffsetsCoverTheCode) {
  const Bytecode& code = decoded("def f(x):\n  return [x[i].a.b(x, k=i) for i in range(3)] if x else {**x}\n");
  int at = 0;
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    const Instruction& in = code.instructions[i];
    EXPECT_GE(in.offset, at);
    EXPECT_GT(in.next_offset, in.offset);
    EXPECT_EQ(code.index_at[static_cast<size_t>(in.offset) / 2], static_cast<int>(i));
    at = in.next_offset;
  }
}

TEST(Bytecode, ArgumentsBeyondAByte) {
  std::string source = "def f(x):\n";
  for (int i = 0; i < 300; ++i) source += "  x = x + " + std::to_string(1000 + i) + "\n";
  const Bytecode& code = decoded(source + "  return x\n");
  std::vector<std::string> constants;
  for (const Instruction& i : code.instructions)
    if (i.op == Opcode::LoadConst) constants.push_back(repr(code.constant(i.arg)));
  ASSERT_EQ(constants.size(), 300u);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(constants[i], std::to_string(1000 + i));
}

TEST(Bytecode, HandlersOfTryBlocks) {
  const Bytecode& code = decoded("def f(x):\n  try:\n    x.a()\n  except ValueError:\n    return 1\n  return x\n");
  const Instruction& call = first(code, Opcode::Call);
  ASSERT_GE(call.handler, 0);
  const Handler& h = code.handlers[static_cast<size_t>(call.handler)];
  EXPECT_EQ(h.depth, 0);
  EXPECT_LT(static_cast<size_t>(h.target), code.instructions.size());
  EXPECT_EQ(first(code, Opcode::ReturnValue).handler, -1);
}

TEST(Bytecode, CellsAndFreeVariables) {
  std::string source = "def outer(a):\n  b = 2\n  def f(c):\n    return a + b + c\n  return f\n";
  const Bytecode& inner = decoded(source, "outer(1)");
  EXPECT_EQ(inner.num_frees, 2);
  EXPECT_TRUE(inner.is_free(inner.num_locals_plus - 1));
  EXPECT_FALSE(inner.is_free(0));
  const Bytecode& outer = decoded(source, "outer");
  int cells = 0;
  for (int i = 0; i < outer.num_locals_plus; ++i) cells += outer.is_cell(i);
  EXPECT_EQ(cells, 2);
}

TEST(Bytecode, LinesForTheUser) {
  Ref f = evaluate("f", "exec(compile('def f(x):\\n  return x', '/no/such/file.py', 'exec'))");
  EXPECT_EQ(describe(UserLine{code_of(f.get()), 2}), "/no/such/file.py:2");
  EXPECT_EQ(source_text(UserLine{code_of(f.get()), 2}), "");
}

}  // namespace
}  // namespace braze::capture
