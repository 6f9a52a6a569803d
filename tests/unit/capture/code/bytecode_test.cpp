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
    if (in.second) continue;  // at the place of the one before
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

TEST(Bytecode, CellsArePushedAsCells) {
  const Bytecode& code = decoded("def f(a):\n  return lambda: a\n");
  EXPECT_EQ(count(code, Opcode::LoadClosure), 1u);
  EXPECT_EQ(count(code, Opcode::LoadFast), 0u);
}

TEST(Bytecode, ComparisonsByTheirNumbers) {
  const Bytecode& code = decoded("def f(a, b):\n  if a != b:\n    return a >= b\n");
  std::vector<int> numbers;
  for (const Instruction& i : code.instructions)
    if (i.op == Opcode::CompareOp) numbers.push_back(i.arg);
  EXPECT_EQ(numbers, (std::vector<int>{Py_NE, Py_GE}));
}

TEST(Bytecode, ALoopEndsBehindWhatTheInterpreterSkips) {
  const Bytecode& code = decoded("def f(x, n):\n  for i in n:\n    x.a(i)\n  return x\n");
  const Instruction& behind = code.instructions[static_cast<size_t>(first(code, Opcode::ForIter).target)];
  EXPECT_EQ(behind.op, Opcode::LoadFast);
  EXPECT_EQ(behind.line, 4);
}

#if PY_VERSION_HEX >= 0x030D0000
std::vector<Opcode> opcodes(const Bytecode& code) {
  std::vector<Opcode> out;
  for (const Instruction& i : code.instructions)
    if (i.op != Opcode::Nop && i.op != Opcode::Resume) out.push_back(i.op);
  return out;
}

TEST(Bytecode, OneInstructionForTwo) {
  using enum Opcode;
  const Bytecode& code = decoded("def f(a, b):\n  a, b = b, a\n  c = a\n  return c + b\n");
  EXPECT_EQ(opcodes(code), (std::vector{LoadFast, LoadFast, StoreFast, StoreFast, LoadFast, StoreFast, LoadFast,
                                        LoadFast, BinaryOp, ReturnValue}));
  std::vector<std::string> names;
  for (const Instruction& i : code.instructions)
    if (i.op == LoadFast || i.op == StoreFast) names.push_back(PyUnicode_AsUTF8(code.local_name(i.arg)));
  EXPECT_EQ(names, (std::vector<std::string>{"b", "a", "b", "a", "a", "c", "c", "b"}));
  for (size_t i = 0; i < code.instructions.size(); ++i)
    if (const Instruction& in = code.instructions[i]; in.second) {
      EXPECT_EQ(in.offset, code.instructions[i - 1].offset);
      EXPECT_EQ(in.next_offset, code.instructions[i - 1].next_offset);
      EXPECT_EQ(code.index_at[static_cast<size_t>(in.offset) / 2], static_cast<int>(i) - 1);
    }
}

TEST(Bytecode, WhatOnlyLaterVersionsHave) {
  using enum Opcode;
  const Bytecode& call = decoded("def f(a):\n  return a(1, k=2)\n");
  constexpr Opcode kNumber = PY_VERSION_HEX >= 0x030E0000 ? LoadSmallInt : LoadConst;
  EXPECT_EQ(opcodes(call), (std::vector{LoadFast, PushNull, kNumber, kNumber, LoadConst, CallKw, ReturnValue}));
  EXPECT_EQ(first(call, CallKw).arg, 2);
  const Bytecode& text = decoded("def f(a):\n  return f'{a!r}{a:>3}'\n");
  EXPECT_EQ(opcodes(text), (std::vector{LoadFast, ConvertValue, FormatValue, LoadFast, LoadConst, FormatValue,
                                        BuildString, ReturnValue}));
  EXPECT_EQ(first(text, ConvertValue).arg, 2);
  const Bytecode& made = decoded("def f(a):\n  return lambda b=a, *, c=a: b\n");
  std::vector<int> attributes;
  for (const Instruction& i : made.instructions)
    if (i.op == SetFunctionAttribute) attributes.push_back(i.arg);
  std::sort(attributes.begin(), attributes.end());
  EXPECT_EQ(attributes, (std::vector<int>{1, 2}));
  // A truth that is asked for before the branch: the branch asks itself.
  const Bytecode& branch = decoded("def f(a, b):\n  if a:\n    return not b\n  return a < b and 1\n");
  EXPECT_EQ(count(branch, Nop), PY_VERSION_HEX >= 0x030E0000 ? 5u : 3u);  // and what marks the ways on behind branches
  EXPECT_EQ(count(branch, UnaryNot), 1u);
}
#endif

#if PY_VERSION_HEX >= 0x030E0000
TEST(Bytecode, ManagersAreAskedForTheirMethods) {
  using enum Opcode;
  const Bytecode& code = decoded("def f(m):\n  with m as x:\n    return x\n");
  std::vector<Opcode> begin = opcodes(code);
  begin.resize(9);
  EXPECT_EQ(begin, (std::vector{LoadFast, Copy, LoadSpecial, Swap, Swap, LoadSpecial, Call, StoreFast, LoadFast}));
  std::vector<int> methods;
  for (const Instruction& i : code.instructions)
    if (i.op == LoadSpecial) methods.push_back(i.arg);
  EXPECT_EQ(methods, (std::vector<int>{1, 0}));
}

TEST(Bytecode, CommonConstantsAndSmallNumbers) {
  using enum Opcode;
  const Bytecode& code = decoded("def f(a):\n  assert a\n  return any(i == 7 for i in a)\n");
  EXPECT_EQ(count(code, LoadAssertionError), 1u);
  EXPECT_EQ(first(code, LoadCommonConstant).arg, 4);
  const Bytecode& numbers = decoded("def f():\n  return 255, 256\n", "f");
  EXPECT_EQ(count(numbers, LoadSmallInt) + count(numbers, LoadConst), 1u);  // the compiler folds the tuple
  EXPECT_EQ(first(decoded("def f(a):\n  return a + 255\n"), LoadSmallInt).arg, 255);
  EXPECT_EQ(count(decoded("def f(a):\n  return a + 256\n"), LoadSmallInt), 0u);
}

TEST(Bytecode, SubscriptsAndCallsWithUnpacking) {
  using enum Opcode;
  EXPECT_EQ(opcodes(decoded("def f(a, b):\n  return a[b]\n")),
            (std::vector{LoadFast, LoadFast, BinarySubscr, ReturnValue}));
  // Without keywords there is NULL in their place.
  EXPECT_EQ(opcodes(decoded("def f(a, b):\n  return a(*b)\n")),
            (std::vector{LoadFast, PushNull, LoadFast, PushNull, CallFunctionEx, ReturnValue}));
  EXPECT_EQ(first(decoded("def f(a, b):\n  return a(*b)\n"), CallFunctionEx).arg, 1);
}

TEST(Bytecode, Templates) {
  using enum Opcode;
  const Bytecode& code = decoded("def f(a):\n  return t'x{a!r:>3}'\n");
  EXPECT_EQ(count(code, BuildTemplate), 1u);
  EXPECT_EQ(first(code, BuildInterpolation).arg >> 2, 2);  // repr()
  EXPECT_TRUE(first(code, BuildInterpolation).arg & 1);
}
#endif

TEST(Bytecode, LinesForTheUser) {
  Ref f = evaluate("f", "exec(compile('def f(x):\\n  return x', '/no/such/file.py', 'exec'))");
  EXPECT_EQ(describe(UserLine{code_of(f.get()), 2}), "/no/such/file.py:2");
  EXPECT_EQ(source_text(UserLine{code_of(f.get()), 2}), "");
}

}  // namespace
}  // namespace braze::capture
