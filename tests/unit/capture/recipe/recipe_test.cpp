// Recipes rebuild values: each register is written once, effects come in order, and a failure leaves what was made to
// its owner.
#include "capture/recipe/recipe.h"

#include "../interpreter.h"

namespace braze::capture {
namespace {

Ref text(const char* s) { return Ref::steal(PyUnicode_FromString(s)); }
Ref number(long n) { return Ref::steal(PyLong_FromLong(n)); }

class Executed {
 public:
  explicit Executed(const Recipe& recipe, std::vector<PyObject*> loads = {}, std::vector<PyObject*> outputs = {},
                    std::vector<int64_t> integers = {})
      : regs_(static_cast<size_t>(recipe.num_registers())) {
    ok = run(recipe, loads.data(), outputs.data(), integers.data(), regs_.data());
  }
  ~Executed() {
    for (PyObject* r : regs_) Py_XDECREF(r);
    PyErr_Clear();
  }
  PyObject* operator[](Reg r) const { return regs_[static_cast<size_t>(r)]; }
  bool ok;

 private:
  std::vector<PyObject*> regs_;
};

class RecipeTest : public testing::Test {
 protected:
  void SetUp() override { start_interpreter(); }
  Recipe recipe;
};

TEST_F(RecipeTest, OneRegisterForOneSource) {
  Sources sources;
  SourceId a = sources.local(0), b = sources.local(1);
  Reg ra = recipe.load(a), rb = recipe.load(b);
  EXPECT_EQ(recipe.load(a), ra);
  EXPECT_NE(ra, rb);
  Reg both = recipe.make(StepKind::Tuple, {ra, rb, ra});
  Ref x = text("x"), y = text("y");
  Executed r(recipe, {x.get(), y.get()});
  ASSERT_TRUE(r.ok);
  EXPECT_EQ(repr(r[both]), "('x', 'y', 'x')");
  EXPECT_EQ(PyTuple_GET_ITEM(r[both], 0), PyTuple_GET_ITEM(r[both], 2));
}

TEST_F(RecipeTest, GraphOutputsConstantsAndNumbers) {
  Ref c = text("c"), out = text("out");
  Reg list = recipe.make(StepKind::List, {recipe.graph_output(0), recipe.constant(c.get()), recipe.integer(1, false),
                                          recipe.integer(0, true), recipe.graph_output(0)});
  EXPECT_EQ(recipe.constant(c.get()), recipe.constant(c.get()));
  Executed r(recipe, {}, {out.get()}, {0, 7});
  ASSERT_TRUE(r.ok);
  EXPECT_EQ(repr(r[list]), "['out', 'c', 7, False, 'out']");
}

TEST_F(RecipeTest, DictsKeepTheirOrder) {
  Ref a = text("a"), b = text("b"), one = number(1), two = number(2);
  Reg d = recipe.make(StepKind::Dict, {recipe.constant(b.get()), recipe.constant(one.get()), recipe.constant(a.get()),
                                       recipe.constant(two.get())});
  Executed r(recipe);
  ASSERT_TRUE(r.ok);
  EXPECT_EQ(repr(r[d]), "{'b': 1, 'a': 2}");
}

TEST_F(RecipeTest, AnObjectWithoutItsConstructor) {
  Ref cls = evaluate("C", "class C:\n  def __init__(self):\n    raise RuntimeError\n");
  Ref name = text("x"), value = number(3);
  Reg o = recipe.make(StepKind::NewObject, {recipe.constant(cls.get())});
  recipe.effect(StepKind::SetAttrRaw, {o, recipe.constant(value.get())}, name.get());
  Executed r(recipe);
  ASSERT_TRUE(r.ok);
  Ref x = Ref::steal(PyObject_GetAttrString(r[o], "x"));
  EXPECT_EQ(repr(x.get()), "3");
}

TEST_F(RecipeTest, CellsAndFunctions) {
  Ref code = evaluate("f.__code__", "def g():\n  v = 0\n  def f(a, b=1):\n    return a + b + v\n  return f\nf = g()\n");
  Ref globals = Ref::steal(PyDict_New()), name = text("made"), five = number(5), ten = number(10),
      hundred = number(100);
  Reg cell = recipe.make(StepKind::NewCell, {});
  Reg closure = recipe.make(StepKind::Tuple, {cell}),
      defaults = recipe.make(StepKind::Tuple, {recipe.constant(ten.get())});
  Reg f = recipe.make(StepKind::Function, {recipe.constant(code.get()), recipe.constant(globals.get()),
                                           recipe.constant(name.get()), defaults, kNoReg, closure, kNoReg});
  recipe.effect(StepKind::CellSet, {cell, recipe.constant(hundred.get())});
  Reg called = recipe.make(StepKind::Call, {f, recipe.constant(five.get())});
  Executed r(recipe);
  ASSERT_TRUE(r.ok);
  EXPECT_EQ(repr(r[called]), "115");
}

TEST_F(RecipeTest, CallsWithKeywords) {
  Ref f = evaluate("lambda *a, **k: (a, k)"), names = evaluate("('x', 'y')"), one = number(1), two = number(2),
      three = number(3);
  Reg r0 = recipe.make(
      StepKind::Call,
      {recipe.constant(f.get()), recipe.constant(one.get()), recipe.constant(two.get()), recipe.constant(three.get())},
      names.get());
  Executed r(recipe);
  ASSERT_TRUE(r.ok);
  EXPECT_EQ(repr(r[r0]), "((1,), {'x': 2, 'y': 3})");
}

TEST_F(RecipeTest, ContainersThatExistedChangeInPlace) {
  Ref list = evaluate("[1, 2, 3]"), dict = evaluate("{'a': 1, 'b': 2}"), a = text("a"), one = number(1),
      two = number(2);
  Sources sources;
  Reg l = recipe.load(sources.local(0)), d = recipe.load(sources.local(1));
  recipe.effect(StepKind::ListAssign, {l, recipe.constant(two.get()), l});
  recipe.effect(StepKind::DelItem, {d, recipe.constant(a.get())});
  recipe.effect(StepKind::SetItem, {d, recipe.constant(a.get()), recipe.constant(one.get())});
  Executed r(recipe, {list.get(), dict.get()});
  ASSERT_TRUE(r.ok);
  EXPECT_EQ(repr(list.get()), "[2, [...]]");
  EXPECT_EQ(repr(dict.get()), "{'b': 2, 'a': 1}");
}

TEST_F(RecipeTest, AFailureStopsThere) {
  Ref f = evaluate("lambda: 1 / 0"), log = evaluate("[]"), one = number(1);
  Sources sources;
  Reg l = recipe.load(sources.local(0));
  Reg made = recipe.make(StepKind::Tuple, {l});
  recipe.make(StepKind::Call, {recipe.constant(f.get())});
  recipe.effect(StepKind::ListAssign, {l, recipe.constant(one.get())});
  {
    Executed r(recipe, {log.get()});
    EXPECT_FALSE(r.ok);
    EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_ZeroDivisionError));
    EXPECT_TRUE(r[made]);
    EXPECT_EQ(repr(log.get()), "[]");
  }
  EXPECT_EQ(Py_REFCNT(log.get()), 1);
}

}  // namespace
}  // namespace braze::capture
