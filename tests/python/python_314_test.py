"""What CPython 3.14 does by other instructions or says in other words: managers, annotations, template strings, partials, unpacking,
keys without a hash. Most of it holds for any version."""

import dataclasses
import functools
import itertools
import sys

import pytest
import torch
from harness import check

import braze

X = torch.linspace(-1, 1, 6).reshape(2, 3)

since_314 = pytest.mark.skipif(sys.version_info < (3, 14), reason="since 3.14")


def compiled_source(source, **names):
    """What the source, which older versions may not be able to parse, calls f."""
    exec(compile(source, __file__, "exec"), names)
    return names["f"]


def iter_entries(trace):
    while trace:
        yield trace
        trace = trace.tb_next


class Plain:
    pass


class Manager:
    def __init__(self, swallows=False):
        self.log, self.swallows = [], swallows

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, cls, value, trace):
        self.log.append(("exit", cls and cls.__name__, str(value), trace is not None))
        return self.swallows


class ManagerOfClassMethods:
    log = []

    @classmethod
    def __enter__(cls):
        return cls

    @staticmethod
    def __exit__(*raised):
        ManagerOfClassMethods.log.append(len(raised))


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("swallows", [False, True])
def test_a_manager_is_left_by_an_exception(breaks, swallows):
    def f(x, m):
        try:
            with m as got:
                y = x + 1
                if breaks and y.sum() > -100:
                    y = y * 2
                if y.sum() > -1000 if breaks else True:
                    raise ValueError("inside")
        except ValueError as e:
            return x * 5, str(e), list(got.log)
        return x * 3, list(m.log), got is m

    for fn in (f, braze.compile(f)):
        m = Manager(swallows)
        result, *rest = fn(X, m)
        torch.testing.assert_close(result, X * (3 if swallows else 5))
        assert m.log == ["enter", ("exit", "ValueError", "inside", True)]
        assert rest == ([m.log, True] if swallows else ["inside", m.log])


@pytest.mark.parametrize(
    "manager", [Manager(), ManagerOfClassMethods(), ManagerOfClassMethods], ids=["plain", "static", "class"]
)
def test_breaks_inside_of_a_manager(manager):
    def f(x, m):
        with m as a, m as b:
            y = x + 1
            if y.sum() > -100:
                y = y * 2
            with m:
                if y.sum() > -1000:
                    y = y + 1
        return y * 2, a is b

    if isinstance(manager, type):
        with pytest.raises(TypeError) as expected:
            f(X, manager)
        with pytest.raises(TypeError) as raised:
            braze.compile(f)(X, manager)
        assert str(raised.value) == str(expected.value)
        return
    count = len(manager.log)
    expected = f(X, manager)
    per_call = manager.log[count:]
    fast = braze.compile(f)
    for _ in range(2):
        count = len(manager.log)
        result, same = fast(X, manager)
        torch.testing.assert_close(result, expected[0])
        assert same == expected[1] and manager.log[count:] == per_call


class OnlyEnter:
    def __enter__(self):
        return self


class OnlyExit:
    def __exit__(self, *raised):
        pass


class OnlyAsync(OnlyEnter):
    async def __aenter__(self):
        return self

    async def __aexit__(self, *raised):
        pass


@pytest.mark.parametrize("manager", [OnlyEnter(), OnlyExit(), OnlyAsync(), 3, Plain()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("breaks", [False, True])
def test_what_is_said_of_no_manager(manager, breaks):
    def f(x, m):
        y = x + 1
        if breaks and y.sum() > -100:
            y = y * 2
        try:
            with m:
                y = y + 1
        except TypeError as e:
            return y, str(e)

    check(f, X, manager, graphs=None)


def test_an_exception_goes_on_behind_a_break_in_its_handler():
    def f(x, m):
        y = x + 1
        with m:
            try:
                y = y * 2
                {}["key"]
            finally:
                if y.sum() > -100:  # a break, with the mark of the instruction on the stack
                    y = y + 1
                m.log.append(float(y.sum()))

    fast = braze.compile(f)
    for _ in range(2):
        told = []
        for fn in (fast, f):
            m = Manager()
            with pytest.raises(KeyError) as e:
                fn(X, m)
            entries = [t for t in iter_entries(e.value.__traceback__) if t.tb_frame.f_code is f.__code__]
            told.append(([(t.tb_lineno, t.tb_lasti) for t in entries], m.log))
        assert told[0] == told[1]


@pytest.mark.parametrize("breaks", [False, True])
def test_any_all_and_tuple_of_generators(breaks):
    def f(x, n):
        if breaks and x.sum() > -100:
            x = x + 1
        some, every = any(i > 2 for i in n), all(i > 2 for i in n)
        return x * 2, some, every, tuple(i + 1 for i in n)

    for n in ([], [1, 2], [2, 3], [3, 4]):
        check(f, X, n, graphs=None)


def test_calls_with_unpacked_arguments():
    def g(x, *args, **kwargs):
        return x + sum(args) + sum(kwargs.values())

    def f(x, args, kwargs):
        y = g(x, *args)
        if y.sum() > 1000:  # a break
            y = y * 2
        return g(y, *args, **kwargs), g(*[y], **kwargs)

    check(f, X, (1, 2), {"a": 3}, graphs=None)


def test_annotations_of_functions_made_inside():
    def outer(x, k: int = 2):
        def inner(y: float, *, z: "int" = 1) -> int:
            return y * z + k

        @functools.wraps(inner)
        def wrapped(*args):
            return inner(*args) + 1

        return wrapped(x), sorted(inner.__annotations__), wrapped.__name__

    check(outer, X)


def test_a_function_made_inside_leaves_with_its_annotations():
    def f(x):
        def g(y: int, z: "int" = 1) -> float:
            return y

        return x + 1, g

    for fn in (f, braze.compile(f)):
        assert fn(X)[1].__annotations__ == {"y": int, "z": "int", "return": float}


@since_314
def test_annotations_are_made_when_they_are_asked_for():
    asked = []
    f = compiled_source(
        "def f(x):\n  def g(y: ask()) -> unknown: return y\n  return x + 1, g, g.__annotate__ is not None",
        ask=lambda: asked.append(1) or int,
    )
    fast = braze.compile(f)
    result, g, has = fast(X)
    torch.testing.assert_close(result, X + 1)
    assert has and not asked
    with pytest.raises(NameError, match="unknown"):
        g.__annotations__
    assert asked == [1]


@since_314
@pytest.mark.parametrize("value", [1.5, "int"])
def test_template_strings(value):
    f = compiled_source(
        "def f(x, v):\n  y = x + 1\n  t = t'a{v!r}b{v}c{y.shape[0]:>3}'\n"
        "  return y * 2, t.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in t.interpolations]"
    )
    check(f, X, value, graphs=None)


@since_314
def test_placeholders_of_partials():
    def g(a, b, c=1):
        return a * 2 + b + c

    def f(x, p):
        return p(x) + 1

    outside = functools.partial(g, functools.Placeholder, 3) if sys.version_info >= (3, 14) else None
    plain = functools.partial(g, 3)
    fast = braze.compile(f)
    for p in (plain, outside, plain, outside):
        torch.testing.assert_close(fast(X, p), f(X, p))
    check(lambda x: functools.partial(g, functools.Placeholder, 3)(x) + 1, X, graphs=None)


@since_314
def test_map_that_is_strict():
    def f(x, a, b):
        y = x + 1
        try:
            return y, list(map(lambda p, q: p + q, a, b, strict=True))
        except ValueError as e:
            return y * 2, str(e)

    check(f, X, [1, 2], [3, 4], graphs=None)
    check(f, X, [1, 2], [3], graphs=None)


def test_cycles_in_their_first_and_later_rounds():
    def f(x, c):
        a, b = next(c), next(c)
        return x * a + b

    eager, fast = itertools.cycle([1, 2, 3]), itertools.cycle([1, 2, 3])
    compiled = braze.compile(f)
    for _ in range(7):
        torch.testing.assert_close(compiled(X, fast), f(X, eager))
    assert next(fast) == next(eager)


def test_small_numbers_and_slices_of_constants():
    def f(x):
        y = x[..., 1:3] + 255
        if y.sum() > -100:  # a break
            y = y[:1]
        return y[0:1] + 256 + len([1, 2, 3][1:]), "abc"[::-1]

    check(f, X, graphs=None)


def test_annotations_of_a_class_made_inside():
    def f(x, n):
        T = int if n else float

        @dataclasses.dataclass
        class Made:
            a: T
            b: "int" = 2

        m = Made(n)
        return x * m.b + m.a, sorted(Made.__annotations__), [t.type for t in dataclasses.fields(m)][0].__name__

    for n in (0, 1):
        check(f, X, n, graphs=None)


@since_314
def test_a_partial_in_a_class_is_a_method():
    class Holder:
        scaled = functools.partial(lambda k, self, x: x * k + self.more, 3)
        more = 1

    check(lambda x, o: o.scaled(x), X, Holder())


@pytest.mark.parametrize(
    "ask",
    [
        lambda: {[]: 1},
        lambda: {1: 2}[[]],
        lambda: {[]},
        lambda: [] in {1: 2},
        lambda: [] in {1},
        lambda: {1}.add({}),
        lambda: {(1, []): 1},
        lambda: 1 in 5,
        lambda: 1 in Plain(),
        lambda: [].index(1),
        lambda: dict([1]),
        lambda: ValueError().add_note(5),
        lambda: ValueError().add_note(None),
        lambda: 1 // 0,
        lambda: 1.0 / 0,
        lambda: (lambda a, b: a)(*[1, 2, 3]),
    ],
)
def test_texts_of_errors(ask):
    def f(x):
        try:
            return x + 1, ask()
        except (TypeError, ValueError, ZeroDivisionError) as e:
            return x + 2, type(e).__name__, str(e), getattr(e, "__notes__", None)

    check(f, X, graphs=None)


@pytest.mark.parametrize("items", [[1, 2, 3], (1, 2, 3), {1: 2, 2: 3, 3: 4}, "abc", range(3), [1]])
@pytest.mark.parametrize("breaks", [False, True])
def test_texts_of_unpacking(items, breaks):
    def f(x, items):
        y = x + 1
        if breaks and y.sum() > -100:
            y = y * 2
        try:
            a, b = items
            return y * a * b
        except ValueError as e:
            return y, str(e)

    check(f, X, items, graphs=None)


def test_texts_about_classes_made_inside():
    def f(x):
        class Inner:
            __slots__ = ("a",)

        said = []
        for act in (lambda o: o.a, lambda o: o.__enter__):
            try:
                act(Inner())
            except AttributeError as e:
                said.append(str(e))
        return x + 1, said

    check(f, X)


def test_unions_of_classes():
    import typing

    def f(x):
        either = typing.Union[int, str]
        return x + 1, isinstance(1, either), isinstance(1.5, int | str), isinstance("a", typing.Optional[str]), either

    check(f, X)


def test_texts_of_functions_made_inside():
    def f(x, n):
        def formatted():
            f"Not a docstring {n}"

        def plain():
            "A docstring."

        def returned():
            return "Not a docstring"

        return x + 1, formatted.__doc__, plain.__doc__, returned.__doc__

    check(f, X, 3)


@pytest.mark.parametrize("attribute", ["__defaults__", "__kwdefaults__"])
def test_defaults_of_a_wrong_class(attribute):
    def f(x):
        def g(a=1, *, b=2):
            return a + b

        try:
            setattr(g, attribute, [("b", 4)])
        except TypeError as e:
            return x * g(), str(e)

    check(f, X)
