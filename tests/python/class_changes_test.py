"""What a program changes of its classes and functions between two calls: the second call sees it."""

import abc
import functools
import warnings

import pytest
import torch
import torch.nn.functional as F

import braze


def check(fn, change, *args, graphs=2):
    """fn compiled, before and after change(), gives what it gives in eager."""
    count = 0

    def backend(gm, inputs):
        nonlocal count
        count += 1
        return gm

    compiled = braze.compile(fn, backend=backend)
    want = fn(*args)
    assert torch.equal(compiled(*args), want)
    assert torch.equal(compiled(*args), want) and count == 1
    change()
    assert torch.equal(compiled(*args), fn(*args))
    assert not torch.equal(fn(*args), want), "the change changes nothing"
    assert count == graphs


X = torch.arange(3.0)


def test_bases_of_a_class_for_isinstance():
    class A: ...

    class B: ...

    class Mid(A): ...

    class C(Mid): ...

    o = C()

    def fn(x):
        return x + 1 if isinstance(o, A) else x - 1

    check(fn, lambda: setattr(Mid, "__bases__", (B,)), X)


def test_bases_of_a_class_for_issubclass():
    class A: ...

    class B: ...

    class C(A): ...

    def fn(x):
        return x + 1 if issubclass(C, A) else x - 1

    check(fn, lambda: setattr(C, "__bases__", (B,)), X)


def test_bases_of_a_class_for_super():
    class A:
        def f(self, x):
            return x + 1

    class B:
        def f(self, x):
            return x * 10

    class C(A):
        def f(self, x):
            return super().f(x)

    o = C()
    check(lambda x: o.f(x), lambda: setattr(C, "__bases__", (B,)), X)


def test_a_class_that_loses_its_call():
    class A:
        def __call__(self): ...

    o = A()

    def fn(x):
        return x + 1 if callable(o) else x - 1

    check(fn, lambda: delattr(A, "__call__"), X)


def test_an_attribute_of_a_class_that_is_asked_for():
    class A:
        f = 1

    o = A()
    check(lambda x: x + 1 if hasattr(o, "f") else x - 1, lambda: delattr(A, "f"), X)


def test_a_cached_property_that_the_instance_has():
    class Base:
        made = 0

        @functools.cached_property
        def value(self):
            Base.made += 1
            return 1.0

    class Derived(Base):
        def total(self, x):
            return x * super().value + self.other

    Derived.other = Base.__dict__["value"]  # kept as "value" all the same

    def f(x, o):
        return o.total(x)

    fast, x = braze.compile(f, fullgraph=True), torch.ones(2)
    given = Derived()
    given.__dict__["value"] = 5.0
    for o in (given, Derived(), Derived()):
        again = Derived()
        again.__dict__.update(o.__dict__)
        torch.testing.assert_close(fast(x, o), f(x, again))
        assert o.__dict__ == again.__dict__


def test_the_function_behind_a_cached_property():
    class A:
        @functools.cached_property
        def k(self):
            return 2.0

    def fn(x):
        return x * A().k

    check(fn, lambda: setattr(A.__dict__["k"], "func", lambda self: 3.0), X)


def test_annotations_of_a_function():
    def g(a: 2): ...

    def fn(x):
        return x + g.__annotations__["a"]

    check(fn, lambda: setattr(g, "__annotations__", {"a": 7}), X)


def test_an_attribute_of_a_function_of_torch():
    F.relu.mark_of_the_test = 2.0
    try:
        check(lambda x: x * F.relu.mark_of_the_test, lambda: setattr(F.relu, "mark_of_the_test", 3.0), X)
    finally:
        del F.relu.mark_of_the_test


def test_an_attribute_of_a_cache():
    @functools.lru_cache
    def g(): ...

    g.scale = 2.0
    check(lambda x: x * g.scale, lambda: setattr(g, "scale", 5.0), X)


def test_what_a_cache_calls_is_not_its_mark():
    @functools.lru_cache
    def g(t):
        return 2.0

    g.__wrapped__ = lambda t: 3.0
    x = torch.ones(2)
    assert torch.equal(braze.compile(lambda x: x * g(x + 1), backend="eager")(x), x * 2)


def test_operators_of_a_class_of_tensors():
    class T(torch.Tensor): ...

    x = torch.ones(2).as_subclass(T)

    def fn(x):
        return (x + 1).as_subclass(torch.Tensor)

    compiled = braze.compile(fn, backend="eager")
    assert torch.equal(compiled(x), fn(x))
    T.__add__ = lambda self, o: torch.Tensor.__add__(self, o * 10)
    assert torch.equal(compiled(x), fn(x)) and fn(x)[0] == 11


def test_a_name_of_the_module_that_hides_an_exception():
    class Other(Exception): ...

    glob = {"torch": torch}
    exec("def fn(x, bad):\n if bad: raise ValueError('no')\n return x + 1", glob)
    compiled = braze.compile(glob["fn"], backend="eager")
    compiled(X, False)
    with pytest.raises(ValueError):
        compiled(X, True)
    glob["ValueError"] = Other
    with pytest.raises(Other):
        compiled(X, True)


def test_a_filter_that_makes_warnings_errors():
    def fn(x):
        log.append(1)
        warnings.warn("seen")
        log.append(2)
        return x + 1

    log = []
    compiled = braze.compile(fn, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(X)
    assert log == [1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            compiled(X)
    assert log == [1, 2, 1]


def test_abstract_methods_of_a_class():
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    def fn(x):
        return x + len(A.__abstractmethods__)

    compiled = braze.compile(fn, backend="eager")
    assert torch.equal(compiled(X), X + 1)
    A.__abstractmethods__ = frozenset()
    assert torch.equal(compiled(X), X)


def test_a_method_in_the_dict_of_an_instance():
    class A:
        def f(self, x):
            return x + 1

    o = A()
    check(lambda x: o.f(x), lambda: o.__dict__.update(f=lambda x: x * 5), X)


def test_module_of_a_function_made_inside():
    glob = {"__name__": "one"}
    exec("def fn(x):\n def g(): ...\n return x + len(g.__module__)", glob)
    check(glob["fn"], lambda: glob.update(__name__="another"), X)


def test_a_module_whose_own_init_never_ran():
    """Such a module has no tables of parameters: Module.__delattr__ fails on that."""

    class M(torch.nn.Module):
        pass

    def fn(x):
        m = M.__new__(M)
        m.__dict__["a"] = 2
        try:
            del m.a
        except AttributeError as e:
            return x + 1, str(e)
        return x, ""

    compiled = braze.compile(fn, backend="eager")
    want, got = fn(X), compiled(X)
    assert want[1] and want[1] == got[1] and torch.equal(want[0], got[0])


def test_a_cell_that_is_empty_is_deleted():
    def fn(x):
        try:
            del cell  # noqa: F821
        except UnboundLocalError as e:
            return x + 1, str(e)
        return x, "", lambda: cell  # noqa: F821

    want, got = fn(X), braze.compile(fn, backend="eager", fullgraph=True)(X)
    assert want[1] == got[1] and torch.equal(want[0], got[0])


@pytest.mark.parametrize("base, value", [(int, 0), (str, "a"), (float, 0.5)])
def test_the_class_of_a_number_or_text(base, value):
    class A(base):
        def m(self):
            return 1

    class B(A):
        def m(self):
            return 2

    class Holder: ...

    o = Holder()
    o.v = A(value)
    check(lambda x, o: x + o.v.m() + len(type(o.v).__name__), lambda: setattr(o.v, "__class__", B), X, o)
