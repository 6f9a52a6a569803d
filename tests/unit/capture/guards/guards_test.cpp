#include <gtest/gtest.h>

#include <algorithm>

#include "capture/guards/guards.h"
#include "python.h"

namespace braze::capture::test {
namespace {

// Guards on the locals of an imagined frame, which are values of a namespace.
struct Guarded {
  explicit Guarded(Python& python, std::vector<std::string> locals) : python(python), names(std::move(locals)) {}

  SourceId local(int i) { return sources->local(i); }
  // A local that is fixed by its identity: what hangs off it is watched.
  SourceId fixed(int i) {
    guards.identity(local(i), python[names[static_cast<size_t>(i)]], {});
    return local(i);
  }
  void compile() {
    guards.simplify(*sources);
    program = GuardProgram::compile(sources, guards, wanted, trace::global_state_key(), names.size(), sizes);
    sources->loosen(program->mortals());
  }
  bool holds() {
    std::vector<PyObject*> slots;
    for (const std::string& n : names) slots.push_back(python[n]);
    bool held = program->check(slots.data(), values);
    failure = held ? "" : program->failure(values);
    return held;
  }

  Python& python;
  std::vector<std::string> names;
  std::shared_ptr<Sources> sources = std::make_shared<Sources>();
  GuardSet guards;
  std::vector<SourceId> wanted;
  SizeGuards sizes;
  std::unique_ptr<GuardProgram> program;
  GuardValues values;
  std::string failure;
};

using Path = SourceId (*)(Guarded&, SourceId);
PyObject* text(const char* s) { return PyUnicode_InternFromString(s); }
SourceId attr(Guarded& g, SourceId s, const char* name) { return g.sources->instance_attr(s, name); }

// A path from `o`, which is fixed or not; what is done to it; whether it leads to the same object or number afterwards.
struct Case {
  const char *name, *setup, *value, *change;
  bool same;
  Path path;
};

const Case kCases[] = {
    {"attribute", "o.a = 1", "o.a", "o.a = 2", false, [](Guarded& g, SourceId o) { return attr(g, o, "a"); }},
    {"equal attribute", "o.a = 1000", "o.a", "o.a = int('1000')", true,
     [](Guarded& g, SourceId o) { return attr(g, o, "a"); }},
    {"other attribute", "o.a = 1", "o.a", "o.b = 2", true, [](Guarded& g, SourceId o) { return attr(g, o, "a"); }},
    {"attribute deleted", "o.a = 1", "o.a", "del o.a", false, [](Guarded& g, SourceId o) { return attr(g, o, "a"); }},
    {"dict replaced", "o.a = 1", "o.a", "o.__dict__ = {'a': 2}", false,
     [](Guarded& g, SourceId o) { return attr(g, o, "a"); }},
    {"class attribute", "C.k = 1", "C.k", "C.k = 2", false,
     [](Guarded& g, SourceId o) { return g.sources->type_attr(g.sources->type_of(o), text("k")); }},
    {"attribute of a base", "B.k = 1", "B.k", "B.k = 2", false,
     [](Guarded& g, SourceId o) { return g.sources->type_attr(g.sources->type_of(o), text("k")); }},
    {"other class attribute", "C.k = 1", "C.k", "C.j = 2", true,
     [](Guarded& g, SourceId o) { return g.sources->type_attr(g.sources->type_of(o), text("k")); }},
    {"another class", "C.k = 1", "C.k", "o.__class__ = D", false,
     [](Guarded& g, SourceId o) { return g.sources->type_attr(g.sources->type_of(o), text("k")); }},
    {"item of a list", "o.a = [1, 2]", "2", "o.a[1] = 3", false,
     [](Guarded& g, SourceId o) { return g.sources->list_item(attr(g, o, "a"), 1); }},
    {"list grown", "o.a = [1, 2]", "2", "o.a += list(range(99))", true,
     [](Guarded& g, SourceId o) { return g.sources->list_item(attr(g, o, "a"), 1); }},
    {"list emptied", "o.a = [1, 2]", "2", "o.a.clear()", false,
     [](Guarded& g, SourceId o) { return g.sources->list_item(attr(g, o, "a"), 1); }},
    {"cell", "o.a = f.__closure__[0]", "1", "cell(2)", false,
     [](Guarded& g, SourceId o) { return g.sources->contents(attr(g, o, "a")); }},
    {"slot", "o.a = S(1)", "1", "o.a.s = 2", false,
     [](Guarded& g, SourceId o) {
       SourceId s = attr(g, o, "a");
       g.guards.type_is(s, reinterpret_cast<PyTypeObject*>(g.python["S"]), {});
       return g.sources->add(SourceKind::Slot, s, static_cast<int64_t>(sizeof(PyObject)), text("s"));
     }},
    {"defaults", "o.a = f", "f.__defaults__", "f.__defaults__ = (2,)", false,
     [](Guarded& g, SourceId o) { return g.sources->derived(SourceKind::FuncDefaults, attr(g, o, "a")); }},
    {"code", "o.a = f", "f.__code__", "f.__code__ = other.__code__", false,
     [](Guarded& g, SourceId o) { return g.sources->derived(SourceKind::FuncCode, attr(g, o, "a")); }},
    {"wrapped mapping", "d = {'k': 1}; o.a = types.MappingProxyType(d)", "1", "d['k'] = 2", false,
     [](Guarded& g, SourceId o) {
       return g.sources->dict_item(g.sources->derived(SourceKind::MappingOrigin, attr(g, o, "a")), "k");
     }},
    {"weak reference", "t = C(); o.a = weakref.ref(t)", "t", "o.a = weakref.ref(C())", false,
     [](Guarded& g, SourceId o) { return g.sources->derived(SourceKind::WeakTarget, attr(g, o, "a")); }},
    {"context variable", "o.a = v = contextvars.ContextVar('v'); v.set(1)", "1", "v.set(2)", false,
     [](Guarded& g, SourceId o) { return g.sources->derived(SourceKind::ContextValue, attr(g, o, "a")); }},
    {"dict made later", "", "None", "f.note = 1", true,
     [](Guarded& g, SourceId o) {
       SourceId at = g.sources->derived(SourceKind::MadeDict, g.sources->constant(g.python["f"]));
       g.guards.absent(g.sources->dict_item(at, "mark"), {});
       g.guards.absent(g.sources->dict_item(at, "other"), {});
       return g.sources->constant(Py_None);
     }},
    {"mark made later", "", "None", "f.mark = 1", false,
     [](Guarded& g, SourceId o) {
       SourceId at = g.sources->derived(SourceKind::MadeDict, g.sources->constant(g.python["f"]));
       g.guards.absent(g.sources->dict_item(at, "mark"), {});
       g.guards.absent(g.sources->dict_item(at, "other"), {});
       return g.sources->constant(Py_None);
     }},
};

const char* kNames = R"(
import types, weakref, contextvars
class B: pass
class C(B): pass
class D(B): k = 5
class S:
    __slots__ = ("s",)
    def __init__(self, s): self.s = s
def outer():
    x = 1
    def f(y=1): return x
    def cell(n):
        nonlocal x
        x = n
    def other(y=1): return x + y
    return f, cell, other
f, cell, other = outer()
o = C()
)";

class Paths : public ::testing::TestWithParam<std::tuple<Case, bool>> {};

TEST_P(Paths, Change) {
  auto& [c, anchored] = GetParam();
  Python python(kNames);
  python.run(c.setup);
  Guarded g(python, {"o"});
  SourceId o = anchored ? g.fixed(0) : g.local(0), at = c.path(g, o);
  PyObject* value = python[c.value];
  bool constant = PyLong_Check(value) || PyTuple_Check(value) || value == Py_None;
  if (constant)
    g.guards.equal(at, value, {});
  else if (PyCode_Check(value))
    g.guards.identity(at, value, {});
  else
    g.guards.weak_identity(at, value, {});
  g.wanted = {at};
  g.compile();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(g.holds()) << g.failure;
    EXPECT_TRUE(g.values.values()[0] == value || constant);
  }
  EXPECT_TRUE(g.program->num_watched() > 0 || !anchored);
  g.values.clear();
  python.run(c.change);
  EXPECT_EQ(g.holds(), c.same) << g.failure;
  EXPECT_EQ(g.holds(), c.same) << g.failure;
}

INSTANTIATE_TEST_SUITE_P(All, Paths, ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Bool()),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param).name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name + (std::get<1>(info.param) ? "_watched" : "_fetched");
                         });

TEST(Guards, ContainersAsAWhole) {
  struct Whole {
    const char *make, *change;
    bool same;
    void (*guard)(Guarded&, SourceId, PyObject*);
  };
  auto keys = [](Guarded& g, SourceId s, PyObject* o) { g.guards.dict_keys(s, o, {}); };
  auto members = [](Guarded& g, SourceId s, PyObject* o) { g.guards.set_members(s, o, {}); };
  auto length = [](Guarded& g, SourceId s, PyObject* o) { g.guards.length(s, PyObject_Length(o), {}); };
  const Whole cases[] = {
      {"{'a': 1, 'b': 2}", "o.a['a'] = 3", true, keys},
      {"{'a': 1, 'b': 2}", "o.a['a'] = o.a.pop('a')", false, keys},
      {"{'a': 1, 'b': 2}", "o.a['c'] = 1", false, length},
      {"collections.OrderedDict(a=1, b=2)", "o.a.move_to_end('a')", false, keys},
      {"{1, 2}", "o.a.add(3)", false, members},
      {"{1, 2}", "o.a.remove(1); o.a.add(1)", true, members},
      {"[1, 2]", "o.a.append(1)", false, length},
      {"[1, 2]", "o.a[0] = 5", true, length},
  };
  for (const Whole& c : cases) {
    Python python(kNames);
    python.run(std::string("import collections\no.a = ") + c.make);
    Guarded g(python, {"o"});
    c.guard(g, attr(g, g.fixed(0), "a"), python["o.a"]);
    g.compile();
    ASSERT_TRUE(g.holds()) << c.make << g.failure;
    ASSERT_TRUE(g.holds()) << c.make << g.failure;
    python.run(c.change);
    EXPECT_EQ(g.holds(), c.same) << c.make << " " << c.change << " " << g.failure;
  }
}

TEST(Guards, GlobalState) {
  Python python(kNames);
  Guarded g(python, {"o"});
  g.guards.exists(g.local(0), {});
  g.compile();
  EXPECT_TRUE(g.holds());
  set_global_state(2);
  EXPECT_FALSE(g.holds());
  EXPECT_NE(g.failure.find("global state"), std::string::npos);
  set_global_state(1);
  EXPECT_TRUE(g.holds());
}

TEST(Guards, EndOfAnObject) {
  Python python(kNames);
  auto values = std::make_unique<Python>("class T: pass\nt = T()\n");
  Guarded g(*values, {"t"});
  g.fixed(0);
  g.compile();
  EXPECT_TRUE(g.holds());
  g.values.clear();
  bool told = false;
  g.program->when_over([&] { told = true; });
  g.guards = {};
  values.reset();
  PyGC_Collect();
  EXPECT_TRUE(told && g.program->is_over());
  EXPECT_NE(g.program->ended().find("gone"), std::string::npos);
}

TEST(Guards, DifferentObjects) {
  // Two that are watched, two that are arguments.
  Python python(std::string(kNames) + "o.a, o.b, x, y = [], [], [], []\n");
  Guarded g(python, {"o", "x", "y"});
  SourceId o = g.fixed(0);
  g.guards.all_distinct({attr(g, o, "a"), attr(g, o, "b"), g.local(1), g.local(2)}, {});
  g.compile();
  EXPECT_TRUE(g.holds() && g.holds()) << g.failure;
  for (auto [change, back] : {std::pair("x = y", "x = []"), std::pair("x = o.b", "x = []"),
                              std::pair("o.a = o.b", "o.a = []"), std::pair("o.a = y", "o.a = []")}) {
    python.run(change);
    EXPECT_FALSE(g.holds()) << change;
    python.run(back);
    EXPECT_TRUE(g.holds()) << g.failure;
  }
}

TEST(Guards, ManyDifferentObjects) {
  Python python("v = [[] for _ in range(600)]\n");
  std::vector<std::string> names;
  for (int i = 0; i < 600; ++i) names.push_back("v[" + std::to_string(i) + "]");
  Guarded g(python, names);
  std::vector<SourceId> all;
  for (int i = 0; i < 600; ++i) all.push_back(g.local(i));
  g.guards.all_distinct(all, {});
  g.compile();
  EXPECT_TRUE(g.holds());
  python.run("v[599] = v[3]");
  EXPECT_FALSE(g.holds());
}

TEST(Guards, MemoryApart) {
  Python python(
      "class T: pass\na, b, c = T(), T(), T()\na.storage, b.storage, c.storage = (16, 32), (32, 48), (32, 48)\n");
  Guarded g(python, {"a", "b", "c"});
  g.guards.apart({g.local(0), g.local(1), g.local(2)}, 1, {});  // only the first is written: the others may share
  g.compile();
  EXPECT_TRUE(g.holds()) << g.failure;
  python.run("a.storage = (0, 16)");
  EXPECT_TRUE(g.holds()) << g.failure;
  python.run("c.storage = (8, 24)");
  EXPECT_FALSE(g.holds());
  EXPECT_FALSE(g.holds());
  python.run("c.storage = (64, 80)");
  EXPECT_TRUE(g.holds()) << g.failure;
}

TEST(Guards, OpenSizes) {
  Python python("class T: pass\nt, n = T(), 3\nt.size = 4\nt.kind = 0\n");
  Guarded g(python, {"t", "n"});
  auto arena = std::make_shared<sym::ExprArena>();
  sym::Expr s = arena->symbol("s", sym::SymbolKind::Size, {2, 100}),
            k = arena->symbol("k", sym::SymbolKind::Size, {0, 50});
  g.sizes.arena = arena;
  g.sizes.symbols = {{s, {2, 100}}, {k, {0, 50}}};
  g.sizes.places = {{g.local(0), 0, 0, false}, {g.local(1), 1, 0, true}};
  g.sizes.conditions = {{arena->lt(k, s), {}}};
  g.sizes.values = {arena->mul(s, k)};
  g.compile();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(g.holds()) << g.failure;
    EXPECT_EQ(g.values.sizes()[0], 12);
  }
  python.run("t.size = 40");
  ASSERT_TRUE(g.holds()) << g.failure;
  EXPECT_EQ(g.values.sizes()[0], 120);
  for (const char* change : {"t.size = 101", "t.size = 3", "n = -1", "n = True", "n = 2 ** 70"}) {
    python.run("t.size, n = 40, 3");
    EXPECT_TRUE(g.holds()) << g.failure;
    python.run(change);
    EXPECT_FALSE(g.holds()) << change;
  }
}

TEST(Guards, NestedCheck) {
  // The equality of a key checks the same guards for other arguments.
  Python python(
      "class K:\n  then = None\n  def __hash__(self): return hash('x')\n  def __eq__(self, other):\n    then, K.then = "
      "K.then, None\n    if then: then()\n    return False\n"
      "d = {K(): 1, 'x': 2}\na, b = object(), object()\n");
  Guarded g(python, {"a", "d"});
  g.guards.equal(g.sources->dict_item(g.local(1), "x"), python["2"], {});
  g.wanted = {g.local(0)};
  g.compile();
  static Guarded* outer;
  static bool inner_held;
  outer = &g;
  PyMethodDef method{"check",
                     [](PyObject*, PyObject*) -> PyObject* {
                       PyObject* slots[] = {outer->python["b"], outer->python["d"]};
                       GuardValues values;
                       inner_held = outer->program->check(slots, values) && values.values()[0] == slots[0];
                       Py_RETURN_NONE;
                     },
                     METH_NOARGS, nullptr};
  Ref then = Ref::steal(PyCFunction_New(&method, nullptr));
  PyObject_SetAttrString(python["K"], "then", then.get());
  EXPECT_TRUE(g.holds());
  EXPECT_TRUE(inner_held);
  EXPECT_EQ(g.values.values()[0], python["a"]);
}

TEST(Guards, Simplify) {
  Python python(kNames);
  python.run("o.a, o.b = [1], 2");
  Guarded g(python, {"o"});
  SourceId o = g.fixed(0), a = attr(g, o, "a");
  g.guards.exists(a, {});
  g.guards.type_is(a, &PyList_Type, {});
  g.guards.length(a, 1, {});
  g.guards.exists(attr(g, o, "b"), {});  // implied by nothing
  for (const char* name : {"x", "y", "z"}) g.guards.absent(attr(g, o, name), {});
  g.compile();
  std::vector<std::string> texts;
  for (const Guard& guard : g.guards.items()) texts.push_back(print(guard, *g.sources));
  EXPECT_EQ(texts.size(), 4u) << ::testing::PrintToString(texts);
  EXPECT_TRUE(g.holds());
  for (const char* change : {"o.a = (1,)", "o.a = [1, 2]", "del o.b", "o.y = 1"}) {
    Python other(kNames);
    python.run("o.__dict__.clear(); o.a, o.b = [1], 2");
    EXPECT_TRUE(g.holds()) << g.failure;
    python.run(change);
    EXPECT_FALSE(g.holds()) << change;
  }
}

}  // namespace
}  // namespace braze::capture::test
