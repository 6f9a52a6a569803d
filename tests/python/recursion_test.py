"""Recursion as deep as the interpreter allows, and deeper."""

import sys

import torch

import braze


class Node:
    def __init__(self):
        self.items = [self]


def unfold(node, seen):
    seen.append(len(seen))
    return [unfold(n, seen) for n in node.items]


def test_a_recursion_without_end():
    def f(x, node, seen):
        try:
            return unfold(node, seen), x + 1
        except RecursionError as e:
            return str(e), x + 2

    node = Node()
    want, deep = f(torch.ones(2), node, seen := []), len(seen)
    for backend in ("eager", "braze"):
        compiled = braze.compile(f, backend=backend)
        for _ in range(2):
            got = compiled(torch.ones(2), node, seen := [])
            assert torch.equal(got[1], want[1]) and got[0][:32] == want[0][:32], got[0]
            # What the recursion has changed on its way down: about as deep as the interpreter goes.
            assert abs(len(seen) - deep) < 150, (len(seen), deep)


def test_a_recursion_as_deep_as_it_may_be():
    def count(x, n):
        return x if n == 0 else count(x, n - 1) + 1

    x = torch.zeros(2)
    n = sys.getrecursionlimit() - 300
    for backend in ("eager", "braze"):
        assert torch.equal(braze.compile(count, backend=backend)(x, n), count(x, n))
