"""Small worlds that change between calls: classes, numbers, containers, messages. They stand for what the fuzzer of worlds found."""

import abc
import collections
import copy
import enum
import functools
import itertools
import types
import weakref

import pytest
import torch
from worlds import World, caught, stay_alike

import braze


@pytest.mark.parametrize(
    "wrong", [lambda x, i: x + i, lambda x, i: torch.stack(i), lambda x, i: x.sum(i), lambda x, i: math_of(i)]
)
def test_a_c_function_takes_nothing_from_an_iterator_that_it_refuses(wrong):
    def make():
        w = World(i=iter([5, 3]))
        w.f = caught(lambda x: wrong(x, w.i))
        return w

    stay_alike(make, seen=lambda w: w.i.__length_hint__())


def math_of(i):
    return collections.deque.__len__(i)


def test_an_abc_remembers_what_it_was_asked():
    def make():
        class Base(abc.ABC):
            pass

        class Other(abc.ABC):
            pass

        class C(Base):
            pass

        w = World(c=C(), C=C, Other=Other)
        w.f = lambda x: x + 1 if isinstance(w.c, Base) else x - 1
        return w

    stay_alike(make, lambda w: setattr(w.C, "__bases__", (w.Other,)))


@pytest.mark.parametrize("said", [None, 2.5, "a", True, 2**64 + 3, -1, 2**62])
def test_hash_that_a_class_says(said):
    def make():
        class C:
            pass

        w = World(c=C(), C=C)
        w.f = caught(lambda x: (hash(w.c), {w.c: 1}[w.c]))
        return w

    def change(w):
        w.C.__hash__ = lambda self: said

    stay_alike(lambda: (w := make(), change(w))[0])


def test_a_number_computed_before_a_break():
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            return 11

    def make():
        w = World(m=Lazy("m"))
        w.m.c = 2

        def f(x):
            out = []
            out.append(w.m.c * 2)
            return out, x + 1

        w.f = f
        return w

    stay_alike(make, lambda w: delattr(w.m, "c"), *(lambda w, v=v: setattr(w.m, "c", v) for v in (3, 4, 5)))


@pytest.mark.parametrize(
    "make_dict",
    [
        dict,
        collections.OrderedDict,
        lambda d: collections.defaultdict(int, d),
        lambda d: types.SimpleNamespace(d={}) and d,
    ],
)
@pytest.mark.parametrize("remove", [lambda d: d.pop(1, None), lambda d: d.__delitem__(1)])
def test_a_key_that_was_there_is_set_and_removed(make_dict, remove):
    def make():
        w = World(d=make_dict({"a": 0, True: 5}))

        def f(x):
            w.d[1] = 3
            remove(w.d)
            return x + 1

        w.f = f
        return w

    stay_alike(make, lambda w: w.d.update({1: 7}), lambda w: None, seen=lambda w: list(w.d.items()))


def test_an_attribute_that_was_there_is_set_and_removed():
    def make():
        w = World(o=World(c=1))

        def f(x):
            w.o.c = 2
            del w.o.c
            return x + 1

        w.f = f
        return w

    stay_alike(make, lambda w: setattr(w.o, "c", 3), lambda w: None, seen=lambda w: vars(w.o))


def test_messages_name_classes_as_they_are_called_now():
    def make():
        class C:
            pass

        w = World(C=C, c=C())
        w.f = lambda x: (caught(lambda x: w.C[0])(x), caught(lambda x: w.c[0])(x), caught(lambda x: w.c.missing)(x))
        return w

    stay_alike(make, lambda w: setattr(w.C, "__name__", "Other"))


def test_an_index_of_a_deque():
    def make():
        w = World(d=collections.deque([1, 2]))
        w.f = caught(lambda x: w.d[(1, 2)])
        return w

    stay_alike(make)


def test_a_module_with_a_call_of_its_own():
    def make():
        w = World(m=torch.nn.ReLU())
        w.f = lambda x: w.m(x - 2)
        return w

    stay_alike(make, lambda w: setattr(w.m, "_call_impl", lambda x: x * 7))


def test_annotations_of_a_class_that_was_changed():
    def make():
        class C:
            pass

        w = World(C=C)

        def f(x):
            C.a = 3
            return x + len(C.__annotations__)

        w.f = f
        return w

    stay_alike(make, seen=lambda w: [k for k in vars(w.C) if k in ("a", "__annotations__")])


@pytest.mark.parametrize("base", [float, str, tuple, object])
def test_an_index_that_a_class_begins_to_give(base):
    def make():
        class C(base):
            pass

        w = World(C=C, c=C())
        w.f = caught(lambda x: [1, 2, 3][w.c])
        return w

    stay_alike(make, lambda w: setattr(w.C, "__index__", lambda self: 1), lambda w: delattr(w.C, "__index__"))


def test_the_identity_of_what_can_only_be_held_keeps_nothing_alive():
    class Number(int):
        pass

    kept = World(n=Number(3))
    tensor = torch.ones(3)
    kept.n.t, died = tensor, []
    weakref.finalize(tensor, died.append, 1)
    del tensor
    compiled = braze.compile(lambda x: x + (id(kept.n) == id(kept)))
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    kept.n = 3
    assert died


def test_iterators_in_c_functions_that_take_them():
    def make():
        w = World(n=itertools.count())
        w.f = lambda x: (
            x + 1,
            functools.reduce(max, iter([1, 5, 2])),
            ",".join(c for c in "ab"),
            sum(v for v in (1, 2)),
            next(w.n),
        )
        return w

    stay_alike(make)


def test_what_super_does_not_find():
    def make():
        class A:
            pass

        class B(A):
            pass

        w = World(A=A, b=B())
        w.f = caught(lambda x: super(type(w.b), w.b).n)
        return w

    stay_alike(make, lambda w: setattr(w.A, "n", 3), lambda w: delattr(w.A, "n"))


@pytest.mark.parametrize(
    "base, a, b",
    [
        (str, "a", "b"),
        (int, 1, 2),
        (float, 1.0, 2.5),
        (tuple, (1,), (2,)),
        (list, [1], [2]),
        (set, {1}, {1, 2}),
        (dict, {1: 1}, {}),
    ],
)
def test_the_content_answers_before_the_other_is_asked(base, a, b):
    def make():
        class C(base):
            __gt__ = lambda self, other: 3
            __radd__ = lambda self, other: 4

        class D(base):
            __gt__ = lambda self, other: 5
            __radd__ = lambda self, other: 6

        w = World(c=C(a), d=C(b), e=D(b))
        w.f = lambda x: [
            caught(g)(x)
            for g in (
                lambda x: w.c < w.d,
                lambda x: w.c < w.e,
                lambda x: w.c + w.d,
                lambda x: w.c + w.e,
                lambda x: a < w.c,
            )
        ]
        return w

    stay_alike(make)


@pytest.mark.parametrize("text", [str, repr, "{}".format, lambda m: "%s" % m, lambda m: f"{m}", lambda m: m.name])
def test_the_text_of_a_member_of_an_enumeration(text):
    def make():
        class E(enum.Enum):
            A = 1

        w = World(m=E.A)
        w.f = lambda x: (x + 1, text(w.m))
        return w

    stay_alike(make, lambda w: setattr(w.m, "_name_", "other"))


@pytest.mark.parametrize("base", [str, int])
def test_an_attribute_of_a_constant_that_its_class_takes_over(base):
    def make():
        class C(base):
            b = functools.cached_property(lambda self: 2)

        w = World(C=C, c=C())
        w.c.__dict__["b"] = 7
        w.f = lambda x: x + w.c.b
        return w

    stay_alike(make, lambda w: setattr(w.C, "b", property(lambda self: 5)))


def test_a_class_method_of_a_metaclass():
    def make():
        class Meta(type):
            b = classmethod(lambda cls: 2)
            name = classmethod(lambda cls: cls.__name__)

        class C(metaclass=Meta):
            pass

        w = World(c=C())
        w.f = lambda x: (x + type(w.c).b(), type(w.c).name(), Meta.name(), type(w.c).b.__self__ is Meta)
        return w

    stay_alike(make)


@pytest.mark.parametrize(
    "make_it",
    [
        collections.deque,
        lambda v: collections.OrderedDict(enumerate(v)),
        lambda v: collections.defaultdict(int, enumerate(v)),
        lambda v: dict(enumerate(v)).values(),
        set,
    ],
)
@pytest.mark.parametrize(
    "give", [lambda v: torch.stack(v), lambda v: torch.result_type(v, torch.ones(1)), lambda v: torch.cat(v)]
)
def test_containers_that_c_functions_refuse(make_it, give):
    def make():
        w = World(v=make_it([torch.ones(2), torch.zeros(2)]))
        w.f = caught(lambda x: give(w.v))
        return w

    stay_alike(make)


@pytest.mark.parametrize("base, value", [(int, 1), (str, "a"), (float, 1.0)])
@pytest.mark.parametrize("name, method", [("__eq__", lambda self, other: False), ("__hash__", lambda self: 5)])
def test_keys_whose_class_begins_to_compare(base, value, name, method):
    def make():
        class C(base):
            __hash__ = base.__hash__

        w = World(C=C, k=C(value), d={value: 2, 7: 3})
        w.f = lambda x: (x + 1, w.d.get(w.k), w.k in w.d, w.k in {value, 9})
        return w

    stay_alike(make, lambda w: setattr(w.C, name, method))


@pytest.mark.parametrize("ask", [lambda o: hasattr(o, "c"), lambda o: getattr(o, "c", 7), lambda o: [o.c] and 1])
def test_whether_a_slot_is_filled(ask):
    class C:
        __slots__ = ("c",)

    def make():
        w = World(o=C())
        w.f = caught(lambda x: ask(w.o))
        return w

    stay_alike(make, lambda w: setattr(w.o, "c", 1), lambda w: setattr(w, "o", C()), lambda w: setattr(w.o, "c", 2))


@pytest.mark.parametrize("base", [list, dict, set, object])
def test_a_cached_method_of_what_has_no_hash(base):
    def make():
        class C(base):
            m = functools.lru_cache(lambda self, n=1: n)
            if base is object:
                __eq__ = lambda self, other: True

        w = World(c=C())
        w.f = lambda x: (caught(lambda x: w.c.m())(x), caught(lambda x: w.c.m([1]))(x), x + 1)
        return w

    stay_alike(make)


@pytest.mark.parametrize(
    "call", [dict.items, list.append, str.upper, int.__add__, len, torch.Tensor.sin, object.__repr__]
)
def test_a_method_of_a_class_without_an_argument(call):
    def make():
        w = World()
        w.f = lambda x: (x + 1, caught(lambda x: call())(x)[1])
        return w

    stay_alike(make)


def test_a_tuple_of_a_subclass_is_asked_first():
    Pair = collections.namedtuple("Pair", "a b")

    def make():
        w = World(p=Pair((1, 2), 3), q=(1, 2))
        w.f = lambda x: (
            x + 1,
            *(
                caught(g)(x)[1]
                for g in (lambda x: w.p[0] < w.p, lambda x: w.q < w.p, lambda x: w.p > w.q, lambda x: w.q == Pair(1, 2))
            ),
        )
        return w

    stay_alike(make)


@pytest.mark.parametrize("base, inner, rest", [(tuple, (1, 2), (3,)), (list, [1, 2], [3])])
def test_a_sequence_of_a_subclass_is_asked_first(base, inner, rest):
    def make():
        class C(base):
            m = lambda self: 1

        w = World(c=C([inner, *rest]), d=types.MappingProxyType({}))
        w.f = lambda x: (
            x + 1,
            *(
                caught(g)(x)[1]
                for g in (lambda x: inner < w.c, lambda x: w.c > inner, lambda x: inner == w.c, lambda x: w < w.d)
            ),
        )
        return w

    stay_alike(make)


@pytest.mark.parametrize("base", [str, int, object])
def test_a_descriptor_that_can_only_be_set(base):
    def make():
        class Plain:
            pass

        class C(base):
            n = Plain()

        w = World(Plain=Plain, c=C())
        w.c.__dict__["n"] = 7
        w.f = lambda x: x + w.c.n
        return w

    stay_alike(make, lambda w: setattr(w.Plain, "__set__", lambda self, o, v: None))


def test_a_class_of_integers_that_learns_to_be_a_sequence():
    def make():
        class C(int):
            pass

        w = World(C=C, c=C(3))
        w.f = caught(lambda x: list(w.c))
        return w

    stay_alike(make, lambda w: setattr(w.C, "__iter__", lambda self: iter([5, 2])))


@pytest.mark.parametrize("name", ["__init__", "count", "m", "__bases__", "__origin__", "nothing"])
def test_an_alias_passes_on_what_it_is_asked_for(name):
    def make():
        class C(collections.namedtuple("C", "a b")):
            def m(self):
                return self.a

        w = World(C=C, alias=C[int])
        w.f = caught(lambda x: (getattr(w.alias, name) is getattr(w.C, name, None), w.alias.__name__))
        return w

    stay_alike(make, lambda w: setattr(w.C, "count", 5), lambda w: setattr(w.C, "__name__", "D"))


@pytest.mark.parametrize("backend", ["braze", "eager"])
def test_effects_before_an_operator_that_refuses_in_the_run(backend):
    def f(x, seen):
        seen[0] = [*seen, 1]
        return x + torch.abs(x > 0)

    want, got = [1], [1]
    x = torch.ones(2)
    for g, seen in ((f, want), (braze.compile(f, backend=backend), got)):
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            g(x, seen)
    assert got == want == [[1, 1]]


@pytest.mark.parametrize("backend", ["braze", "eager"])
def test_writes_before_an_operator_that_refuses_in_the_run_happen_once(backend):
    def f(x, seen):
        x.add_(1)
        seen[0] = 2
        return torch.abs(x > 0)

    for g in (f, braze.compile(f, backend=backend)):
        x = torch.ones(2)
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            g(x, [0])
        assert torch.equal(x, torch.full((2,), 2.0))


def test_a_backends_own_exception_is_seen():
    def backend(gm, inputs):
        def run(*args):
            raise KeyError("of the backend")

        return run

    with pytest.raises(KeyError, match="of the backend"):
        braze.compile(lambda x, seen: (seen.append(1), x + 1), backend=backend)(torch.ones(2), [])


def test_names_of_slots_stay_on_copied_classes():
    for copied in (functools.partial(copy.copy), copy.deepcopy):

        class C:
            pass

        c = C()
        c.a = 1
        braze.compile(lambda x: (copied(c), x + 1))(torch.ones(2))
        assert vars(C)["__slotnames__"] == []


@pytest.mark.parametrize("cls", [dict, list, set])
def test_what_was_written_becomes_what_is_read(cls):
    def make():
        class C(cls):
            pass

        w = World(a=C(), b=C())
        add = {dict: lambda a: a.update(c=3), list: lambda a: a.append(3), set: lambda a: a.add(3)}[cls]
        w.f = lambda x: (add(w.a), x + 1, len(w.b))
        return w

    stay_alike(make, lambda w: setattr(w, "a", w.b), seen=lambda w: (len(w.a), len(w.b)))


def test_a_weak_reference_as_a_key_after_its_target_was_let_go():
    def make():
        class C:
            pass

        w = World(held={1: C()})
        w.weak = weakref.ref(w.held[1])

        def f(x):
            w.held.pop(1, None)
            return x + 1, {2: 3}.get(w.weak, 4)

        w.f = caught(f)
        return w

    stay_alike(make)


def test_what_a_module_finds_on_its_class():
    class Settings(types.ModuleType):
        scale = 1

        def shifted(self, t):
            return t + self.scale

        @staticmethod
        def twice(t):
            return t * 2

    settings = Settings("settings")

    def fn(t):
        return t + settings.scale, settings.shifted(t), settings.twice(t)

    compiled, x = braze.compile(fn, fullgraph=True), torch.zeros(1)

    def own():
        settings.scale = 5
        settings.twice = lambda t: t * 100 + 1

    def of_class():
        Settings.scale = 7
        Settings.shifted = lambda self, t: t + 50

    def without_its_own(t):
        settings.scale = 3
        del settings.scale
        return t + settings.scale

    assert braze.compile(without_its_own)(x).item() == without_its_own(x).item() == 1
    for change in (lambda: None, of_class, own, lambda: delattr(settings, "scale"), lambda: delattr(settings, "twice")):
        change()
        assert [t.item() for t in compiled(x)] == [t.item() for t in fn(x)]
