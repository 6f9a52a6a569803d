"""Code that goes on after a break, by what is on the stack there."""

import itertools

import pytest
import torch
from torch.utils._pytree import tree_map_only

import braze


class Dispatching(torch.Tensor):
    """Not compiled: calls of its methods are the interpreter's, which loads them as one value."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = tree_map_only(cls, lambda t: t.plain, (args, kwargs or {}))
        return function(*plain[0], **plain[1])

    @staticmethod
    def of(plain):
        made = torch.Tensor._make_wrapper_subclass(Dispatching, plain.shape, dtype=plain.dtype)
        made.plain = plain
        return made


@pytest.mark.parametrize("kinds", list(itertools.product([False, True], repeat=4)))
def test_methods_as_one_value_or_two(kinds):
    def fn(left, right):
        found = []
        for a, b in zip(left, right):
            found.append(torch.equal(a, b.to(a.dtype)))
        return found

    def of(special, n):
        plain = torch.full((2,), float(n))
        return Dispatching.of(plain) if special else plain

    left = [of(kinds[0], 1), of(kinds[1], 2), of(kinds[0], 3)]
    right = [of(kinds[2], 1), of(kinds[3], 2), of(kinds[2], 4)]
    compiled = braze.compile(fn)
    for _ in range(2):
        assert compiled(left, right) == [True, True, False]
