"""What the random programs of language_programs.py use."""

import collections
import contextlib
import functools
import itertools
import operator

import torch


class Fault(Exception):
    pass


class Deep(Fault):
    def __init__(self, a, b=2):
        super().__init__(a, b)
        self.b = b


class Point:
    count = 0

    def __init__(self, a, b=1):
        self.a, self.b = a, b
        type(self).count += 1

    @property
    def total(self):
        return self.a + self.b

    @total.setter
    def total(self, v):
        self.a = v - self.b

    def __add__(self, o):
        return type(self)(self.a + (o.a if isinstance(o, Point) else o), self.b)

    def __radd__(self, o):
        return self + o

    def __iadd__(self, o):
        self.b += o if isinstance(o, int) else o.b
        return self

    def __eq__(self, o):
        return isinstance(o, Point) and (self.a, self.b) == (o.a, o.b)

    def __hash__(self):
        return hash((self.a, self.b))

    def __lt__(self, o):
        return self.a < o.a

    def __getitem__(self, i):
        return (self.a, self.b)[i]

    def __len__(self):
        return 2

    def __bool__(self):
        return self.a != 0

    def __repr__(self):
        return f"{type(self).__name__}({self.a}, {self.b})"

    def __call__(self, k=1, *rest, z=0, **more):
        return self.a * k + z + len(rest) + len(more)

    def __contains__(self, v):
        return v in (self.a, self.b)

    @classmethod
    def make(cls, v):
        return cls(v, v + 1)

    @staticmethod
    def twice(v):
        return v * 2


class Third(Point):
    __slots__ = ("c",)
    __match_args__ = ("a", "b")

    def __init__(self, a, b=1, c=3):
        super().__init__(a, b)
        self.c = c

    @property
    def total(self):
        return super().total + self.c

    def __getattr__(self, name):
        if name == "d":
            return self.a * 10
        raise AttributeError(name)

    def __enter__(self):
        return self

    def __exit__(self, kind, e, tb):
        return kind is not None and issubclass(kind, ValueError)


class Count:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


def traced(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        inner.calls += 1
        return fn(*args, **kwargs)

    inner.calls = 0
    return inner


def scaled(by):
    def decorate(fn):
        return lambda *args: fn(*args) * by

    return decorate


@contextlib.contextmanager
def managed(log, name, swallow=()):
    log.append(("in", name))
    try:
        yield name
    except swallow as e:
        log.append(("swallowed", type(e).__name__))
    finally:
        log.append(("out", name))


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def numbers(n, log):
    try:
        for i in range(n):
            got = yield i
            if got:
                log.append(got)
    finally:
        log.append("end")
    return n * 10


def delegating(n, log):
    result = yield from numbers(n, log)
    yield result


def streaming(x, n, scale=2):
    total = x * scale
    steps = [total]
    for step in range(n):
        got = yield steps[-1] + step
        steps.append(total * len(steps) if got is None else total + got)
    return len(steps)


LEVEL = 0
HELD = []  # generators that outlive a call
FLOW = []  # those that yield tensors
