// Which locals can still be read: what is not is dropped when capture stops.
#include "capture/code/liveness.h"

#include <algorithm>

#include "../interpreter.h"

namespace braze::capture {
namespace {

struct Code {
  explicit Code(const std::string& source, const std::string& name = "f")
      : function(evaluate(name, source)), code(decode(code_of(function.get()))) {}
  // Names that are live at the first instruction of a line.
  std::string at_line(int line) const {
    auto it = std::find_if(code.instructions.begin(), code.instructions.end(),
                           [&](const Instruction& i) { return i.line == line && i.op != Opcode::Resume; });
    EXPECT_NE(it, code.instructions.end());
    std::vector<bool> live = live_locals(code, static_cast<int>(it - code.instructions.begin()));
    std::string out;
    for (size_t i = 0; i < live.size(); ++i)
      if (live[i]) out += std::string(out.empty() ? "" : " ") + PyUnicode_AsUTF8(code.local_name(static_cast<int>(i)));
    return out;
  }
  Ref function;
  const Bytecode& code;
};

TEST(Liveness, WhatIsReadLater) {
  Code f("def f(a, b):\n  c = a + 1\n  d = c * b\n  return d\n");
  EXPECT_EQ(f.at_line(2), "a b");
  EXPECT_EQ(f.at_line(3), "b c");
  EXPECT_EQ(f.at_line(4), "d");
}

TEST(Liveness, AStoreEndsIt) {
  Code f("def f(a, b):\n  g(b)\n  a = b\n  return a\n");
  EXPECT_EQ(f.at_line(2), "b");
}

TEST(Liveness, EitherBranch) {
  Code f("def f(a, b, c):\n  if a:\n    return b\n  return c\n");
  EXPECT_EQ(f.at_line(2), "a b c");
  EXPECT_EQ(f.at_line(3), "b");
  EXPECT_EQ(f.at_line(4), "c");
}

TEST(Liveness, AroundALoop) {
  Code f("def f(n, x, y):\n  for i in n:\n    x = x + y\n  return x\n");
  EXPECT_EQ(f.at_line(3), "x y");
}

TEST(Liveness, WhatAHandlerReads) {
  Code f("def f(a, b):\n  try:\n    a.g()\n    h()\n  except E:\n    return b\n  return 1\n");
  EXPECT_EQ(f.at_line(4), "b");
  EXPECT_EQ(f.at_line(7), "");
}

TEST(Liveness, ADeletedNameIsLooked) {
  Code f("def f(a, b):\n  g()\n  del a\n  return b\n");
  EXPECT_EQ(f.at_line(2), "a b");
}

TEST(Liveness, CellsAreAlwaysRead) {
  Code f("def f(a, b):\n  g = lambda: a\n  h(g)\n  return 1\n");
  EXPECT_NE(f.at_line(4).find("a"), std::string::npos);
  EXPECT_EQ(f.at_line(4).find("b"), std::string::npos);
}

TEST(Liveness, CodeThatLooksAtItsFrame) {
  Code f("def f(a, b):\n  c = 1\n  return locals()\n");
  EXPECT_EQ(f.at_line(3), "a b c");
}

}  // namespace
}  // namespace braze::capture
