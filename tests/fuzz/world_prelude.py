"""What every random world starts with: helpers of the programs, and classes that they use."""

import abc
import collections
import contextvars
import dataclasses
import enum
import functools
import operator
import types
import typing
import weakref

import numpy as np
import torch


def mix(x, v):
    """A tensor that depends on v."""
    if isinstance(v, torch.Tensor):
        return x + v.sum()
    if isinstance(v, (int, float)):
        return x * 2 + v
    if isinstance(v, str):
        return x + len(v.partition("grad_fn")[0])  # names of backwards are not compared
    return x - 1 if v is None else x - 2


def make(cls, **attributes):
    o = cls.__new__(cls)
    for name, value in attributes.items():
        if hasattr(o, "__dict__"):
            o.__dict__[name] = value
        else:
            object.__setattr__(o, name, value)
    return o


def reorder(d):
    for key in list(d)[:1]:
        d[key] = d.pop(key)


def refill(d):
    items = list(d.items())
    d.clear()
    d.update(items)


def enters(o):
    with o as v:
        return v


def raises(e):
    try:
        raise e
    except LookupError as caught:
        return caught.args


def double(g):
    return g * 2


def cached(fn, name):
    p = functools.cached_property(fn)
    p.__set_name__(None, name)
    return p


def closed(v):
    def inner(n=1, *, k=2):
        return v

    return inner


class Reads:
    """A descriptor that an instance's own attribute hides."""

    def __init__(self, v):
        self.v = v

    def __get__(self, o, cls):
        return self.v


class Both(Reads):
    """One that comes before it."""

    def __set__(self, o, value):
        self.v = value


class Plain:
    """No descriptor, until it is made one."""

    def __init__(self, v):
        self.v = v


class Marked(abc.ABC):
    pass


class Quacks(abc.ABC):
    @classmethod
    def __subclasshook__(cls, c):
        return "m" in c.__dict__ or NotImplemented


class Fault(LookupError):
    pass


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        if name[0] == "_":
            raise AttributeError(name)
        return 11


class Computes(types.ModuleType):
    @property
    def a(self):
        return 12


class Number(enum.Enum):
    A = 1
    B = 2

    def twice(self):
        return self.value * 2


class Small(enum.IntEnum):
    A = 1
    B = 2

    def twice(self):
        return self.value * 2


class Pair(collections.namedtuple("Pair", "a b")):
    def m(self):
        return self.a


class Typed(typing.NamedTuple):
    a: object
    b: object = 2


class Items(tuple):
    def m(self):
        return len(self)


@dataclasses.dataclass
class Data:
    a: object
    b: object = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: object = 2


class Whole(int):
    def m(self):
        return self + 1


class Text(str):
    def m(self):
        return len(self)


class Real(float):
    def m(self):
        return 1


class ListOf(list):
    pass


class DictOf(dict):
    def __missing__(self, key):
        return 8


class SetOf(set):
    pass


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2, 3))
        self.register_buffer("buf", torch.ones(2, 3))
        self.sub = torch.nn.ReLU()
        self.items_ = torch.nn.ModuleList([torch.nn.Tanh(), torch.nn.ReLU()])
        self.named = torch.nn.ModuleDict({"a": torch.nn.Tanh()})
        self.scale = 2

    def forward(self, y):
        y = self.sub(y * self.w) * self.scale
        return y + self.buf if self.training else y - self.buf


class Other(Net):
    def forward(self, y):
        return self.sub(y) - self.w


def steps(*values):
    kept = [*values]
    for y in kept:
        got = yield y
        if got is not None and len(kept) < 9:
            kept.append(got)


K = 4
