"""Functions that are their own tests: registered with their arguments, run plain and compiled."""

import torch
from harness import check


class P:
    """An argument that is made anew for each test."""

    def __init__(self, make):
        self.make = make


def X(*shape):
    return torch.randn(*(shape or (3, 4)))


x, y, row = P(X), P(X), P(lambda: X(4))


def run(fn, args, kw):
    check(fn, *[a.make() if isinstance(a, P) else a for a in args], **kw)
