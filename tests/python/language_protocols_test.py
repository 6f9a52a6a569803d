"""Protocols of Python and PyTorch in compiled functions: descriptors, hashes, iterators that leave, attributes of tensors, states."""

import collections
import collections.abc
import dataclasses
import functools
import itertools
import operator
import sys
import typing
import unittest.mock
import warnings

import pytest
import torch
from harness import Graphs, check

import braze

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def test_an_attribute_that_a_tensor_lacks_is_guarded():
    fn = braze.compile(lambda x: x + 2 if hasattr(x, "mark") else x + 1, fullgraph=True)
    torch.testing.assert_close(fn(X), X + 1)
    marked = X.clone()
    marked.mark = None
    torch.testing.assert_close(fn(marked), X + 2)


def test_the_gradient_put_on_a_new_tensor():
    def fn(x):
        y = x + 10
        y.grad = x
        y.mark = 42
        return y

    y = braze.compile(fn, fullgraph=True)(X)
    torch.testing.assert_close(y.grad, X)
    assert y.mark == 42


def test_tensors_in_a_set_are_told_apart():
    g = X.clone()
    fn = lambda a, b, c: a + len({g, a, b, c})
    compiled = braze.compile(fn, fullgraph=True)
    a, b, c = X.clone(), X.clone(), X.clone()
    for args in ((a, b, c), (b, a, c), (a, a, a), (b, b, b), (g, g, g), (a, b, c)):
        torch.testing.assert_close(compiled(*args), fn(*args))


@pytest.mark.parametrize(
    "dtype, cls",
    [
        (torch.float32, torch.FloatTensor),
        (torch.float64, torch.DoubleTensor),
        (torch.int64, torch.LongTensor),
        (torch.bool, torch.BoolTensor),
    ],
)
def test_classes_of_tensors_by_type(dtype, cls):
    check(lambda x: (x.to(dtype) + 0, isinstance(x.to(dtype), cls), isinstance(x, cls), isinstance(3, cls)), X)


class Stored:
    def __init__(self, n):
        self.__dict__["field"] = n

    field = property(lambda self: self.__dict__["field"])


def test_a_value_behind_a_property():
    x, made = braze.compile(lambda x: (x + Stored(42).field, Stored(7)), fullgraph=True)(X)
    torch.testing.assert_close(x, X + 42)
    assert made.field == 7


def test_descriptors_called_by_hand():
    check(lambda x: (x + 1, torch.Tensor.shape.__get__(x)), X)
    get = torch.Tensor.shape.__get__
    check(lambda x: (x + 1, get(x)), X)


class Plain:
    known = 4


def test_the_dict_of_a_class():
    fn = braze.compile(lambda x: x + ("known" in Plain.__dict__) + 2 * ("later" in Plain.__dict__), fullgraph=True)
    torch.testing.assert_close(fn(X), X + 1)
    Plain.later = 1
    torch.testing.assert_close(fn(X), X + 3)
    del Plain.later
    torch.testing.assert_close(fn(X), X + 1)


def test_warnings_caught():
    def fn(x):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("ignore")
            return x.sin()

    check(lambda x: x.sin(), X)  # what is imported for the first capture may add filters
    before = list(warnings.filters), warnings.showwarning
    check(fn, X)
    assert (list(warnings.filters), warnings.showwarning) == before


class OfASubclass:
    def __float__(self):  # deprecated: warns whoever asks for the float
        return type("Sub", (float,), {})(42.0)


def test_warnings_that_the_program_sees():
    def recorded(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x = x + float(OfASubclass())
        return x, [w.category for w in seen]

    def raised(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                float(OfASubclass())
            except DeprecationWarning:
                return x + 1
        return x

    for fn in (recorded, raised):
        compiled = braze.compile(fn)
        for _ in range(2):
            want, got = fn(X), compiled(X)
            assert want[0].equal(got[0]) and want[1:] == got[1:] if fn is recorded else want.equal(got)


def test_deterministic_algorithms_set_inside():
    def fn(x):
        assert torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        return x + 1

    compiled = braze.compile(fn, fullgraph=True)
    for _ in range(2):
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            torch.testing.assert_close(compiled(X), X + 1)
            assert (
                not torch.are_deterministic_algorithms_enabled()
                and not torch.is_deterministic_algorithms_warn_only_enabled()
            )
        finally:
            torch.use_deterministic_algorithms(False)


def test_struct_sequences_are_made():
    check(lambda x: torch.return_types.max((x, x + 1)), X)
    check(lambda x: tuple(torch.return_types.linalg_qr((x, x + 1))), X)


def test_iterators_leave_before_their_first_item():
    for fn in (
        lambda x: itertools.islice(x, 0, 2),
        lambda x: itertools.accumulate([x, x + 1, x + 2], operator.mul, initial=3),
        lambda x: itertools.chain([x], [x + 1]),
    ):
        got, want = braze.compile(fn, fullgraph=True)(X), fn(X)
        assert type(got) is type(want)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)


@dataclasses.dataclass(frozen=True)
class Inner:
    x: float
    y: float


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    z: int


def test_objects_hash_by_their_fields():
    def fn(x):
        d = {Outer(Inner(2.4, 4.4), 5): 2}
        return x + d[Outer(Inner(2.4, 4.4), 5)], hash(Outer(Inner(1.0, 2.0), 3)), hash((Inner(1.0, 2.0), 3))

    check(fn, X)


T = typing.TypeVar("T")


def test_forms_of_typing():
    def fn(x):
        def apply(f: typing.Callable[[T], T], y: T) -> typing.Optional[T]:
            return f(y)

        return apply(torch.sin, x)

    check(fn, X)


def test_attributes_of_partials():
    def fn(x):
        p = functools.partial(torch.add, other=x)
        return p(x), [hasattr(p, name) for name in ("__call__", "__doc__", "__hash__", "func", "__name__", "__code__")]

    check(fn, X)


def test_ordered_dicts_from_keys():
    check(lambda x: collections.OrderedDict.fromkeys(("a", "b"), value=x + 1), X)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="class methods ask no descriptor from 3.13 on")
def test_class_methods_of_properties():
    class Named:
        _index = 1

        @classmethod
        @property
        def part(cls):
            return slice(cls._index, cls._index + 2)

    check(lambda x: x[:, Named.part], X)


def test_functions_that_were_scripted():
    scripted = torch.jit.script(_scaled)
    check(lambda x: scripted(x) + scripted(x, 3.0), X)


def _scaled(x, c: float = 2.0):
    return torch.cos(x) * c


def test_numbers_of_tensors_in_lists():
    for dtype in (None, torch.float64):
        check(lambda a, b: torch.tensor([a, b, 3], dtype=dtype), torch.tensor(20), torch.tensor(1.5))
    with pytest.raises(TypeError, match="only integer tensors"):
        braze.compile(lambda a: torch.tensor([a, 3], dtype=torch.int64))(torch.tensor(1.5))
    check(lambda a: torch.tensor([a, 3], dtype=torch.int32), torch.tensor(20))
    check(lambda a: torch.tensor([[a, a + 1], [2, a]]), torch.tensor(True))
    check(lambda x: 1 + torch._shape_as_tensor(x)[0], X)


def test_keywords_that_python_reserves():
    check(lambda x: x.clone().random_(**{"from": 3, "to": 4}), X)


def test_a_function_with_saved_tensors_for_another_backend():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.factor = 3
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.factor * x * x

    counter = Graphs()
    x = X.clone().requires_grad_()
    braze.compile(lambda x: Cube.apply(x + 1) * 2, backend=counter, fullgraph=True)(x).sum().backward()
    assert counter.count == 1
    torch.testing.assert_close(x.grad, 6 * (X + 1) ** 2)


class LikeAGenerator:
    def send(self): ...
    def throw(self): ...
    def close(self): ...
    def __iter__(self): ...
    def __next__(self): ...


class SaysItIsAnother:
    @property
    def __class__(self):
        return LikeAGenerator


def test_abstract_classes_ask_the_class_that_an_object_says():
    kinds = (
        collections.abc.Generator,
        collections.abc.Iterator,
        collections.abc.Sized,
        LikeAGenerator,
        SaysItIsAnother,
    )

    def made_here(x):
        return [isinstance(SaysItIsAnother(), k) for k in kinds], x + 1

    def given(x, o):
        return [isinstance(o, k) for k in kinds], x + 1

    check(made_here, torch.ones(2))
    check(given, torch.ones(2), SaysItIsAnother())
    mock = unittest.mock.MagicMock(LikeAGenerator)
    assert braze.compile(given)(X, mock)[0] == given(X, mock)[0]


def test_new_tensors_like_another():
    def fn(x):
        return (
            x.new_tensor([1, 2]),
            x.new_tensor(3, dtype=torch.int64),
            x.new(2, 3).fill_(2),
            x.new([1, 2]),
            x.new().shape,
        )

    check(fn, X)
    check(fn, X.double())


class Counting(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.made_by = cls.__name__
        return made


class Counted(metaclass=Counting):
    def __init__(self, x):
        self.x = x


def test_a_metaclass_that_makes_the_objects():
    def fn(x):
        made = Counted(x + 1)
        return made.x, made.made_by, type.__call__(Counted, x).x

    check(fn, X)


def test_trees_of_one_type():
    only = torch.utils._pytree.tree_map_only
    check(lambda x: only(torch.Tensor, lambda t: t + 1, {"a": x, "b": [x, 3]}), X)


def test_texts_of_containers():
    def fn(x):
        counts = collections.defaultdict(int, a=1)
        texts = [repr(collections.OrderedDict(a=1)), str(collections.deque([1, 2], 3)), f"{counts}"]
        return x + 1, texts

    check(fn, X)


class Hashed:
    asked = 0

    def __init__(self, v):
        self.v = v

    def __hash__(self):
        Hashed.asked += 1
        return hash(self.v)

    def __eq__(self, other):
        return self.v == other.v


def test_copies_of_dicts_and_sets_ask_no_key_for_its_hash():
    def fn(x):
        Hashed.asked = 0
        d = {Hashed(1): 1, Hashed(2): 2}
        s = set(d)
        copies = dict(d), frozenset(s), set(s)
        return x + 1, Hashed.asked, [len(c) for c in copies]

    check(fn, X)


def test_the_comparison_of_a_key_changes_the_dict():
    def f(x, same, then):
        class Key:
            def __init__(self):
                self.asked = 0

            def __hash__(self):
                return hash("key")

            def __eq__(self, other):
                self.asked += 1
                if then and self.asked == 1:
                    d.clear()
                    d["other"] = 3
                return same

        k = Key()
        d = {k: 1}
        for i in range(3):
            d[i] = i
        found = "key" in d, d.get("key"), d.pop("key", None)
        return x + len(d), found, [str(key) for key in d if key is not k]

    x = torch.ones(2)
    for same, then in ((False, True), (True, True), (True, False), (False, False)):
        want, got = f(x, same, then), braze.compile(f)(x, same, then)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:], (same, then, got, want)
