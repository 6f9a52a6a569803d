"""Calls of functions in C, in one graph: errors of wrong calls in CPython's words, objects that stand for numbers, makers of functions."""

import collections
import copy
import operator
import typing

import pytest
import torch

import braze


class Two:
    def __index__(self):
        return 2

    def __float__(self):
        return 1.5

    def __round__(self, n=None):
        return 6


class Closes(typing.Protocol):
    def close(self): ...


Closing = typing.runtime_checkable(Closes)


class File:
    def close(self): ...


def positional(p, q=1, *, k):
    return p


second = operator.itemgetter(1)
width = operator.attrgetter("shape")
plus = operator.methodcaller("add", 2)

WRONG = [
    lambda: positional(),
    lambda: positional(1),
    lambda: positional(1, 2, 3, k=1),
    lambda: positional(1, k=1, z=2),
    lambda: positional(1, p=2, k=1),
    lambda: [].append(),
    lambda: {}.get(),
    lambda: {}.keys(1),
    lambda: [1].index(),
    lambda: len(),
    lambda: len(1, 2),
    lambda: isinstance(1),
    lambda: list.append((1,), 2),
    lambda: tuple.__lt__(1, 2),
    lambda: sum([1], x=2),
    lambda: {1} - [1],
    lambda: {1} < [1],
    lambda: [1] < (1,),
    lambda: setattr(1, 2, 3),
    lambda: vars(1),
    lambda: "".join(1),
    lambda: object(1),
    lambda: File(1),
    lambda: hash(),
    lambda: enumerate(),
    lambda: [1].__setitem__(slice(0, 1), 3),
    lambda: [1, 2].__setitem__(slice(0, 2, 2), 3),
    lambda: [1, 2].insert("a", 1),
    lambda: [1, 2].pop("a"),
    lambda: collections.deque([1]).rotate("a"),
    lambda: len(*3),
    lambda: copy.copy(*3),
    lambda: copy.copy(**{"x": 1}, **{"x": 2}),
    lambda: copy.copy(**3),
]


@pytest.mark.parametrize("i", range(len(WRONG)))
def test_the_error_of_a_wrong_call(i):
    call = WRONG[i]

    def fn(t):
        try:
            return t, call()
        except TypeError as e:
            return t + 1, str(e)

    t = torch.ones(2)
    (want, text), (got, said) = fn(t), braze.compile(fn, fullgraph=True)(t)
    assert torch.equal(want, got) and text == said


def numbers(t):
    z = Two()
    return (
        t * z.__index__(),
        [1, 2, 3][z],
        "abc"[z:],
        range(z),
        hex(z),
        operator.index(z),
        [0] * z,
        round(z),
        round(2.567, z),
        (1, 2, 3)[z],
    )


def makers(t):
    return (
        second([t, t + 1]) + 1,
        width(t),
        plus(t),
        operator.itemgetter(0, 1)([t, 2]),
        type(operator.itemgetter(1)).__name__,
    )


def copies(t):
    held = [t, {1, 2}]
    other = copy.deepcopy(held)
    return other[0] + 1, other[0] is t, other[1] == held[1], other[1] is held[1]


def classes(t):
    return (
        t,
        isinstance((), typing.Sequence),
        isinstance(1, typing.Union[int, str]),
        isinstance(File(), Closing),
        isinstance(3, Closing),
        list[int] == list[int],
    )


@pytest.mark.parametrize("fn", [numbers, makers, copies, classes])
def test_one_graph(fn):
    t = torch.ones(2)
    want, got = fn(t), braze.compile(fn, fullgraph=True)(t)
    assert repr(want) == repr(got)
