"""Functions that are their own tests: registered with their arguments, run plain and compiled."""

import pytest
import torch
from harness import check


class P:
    """An argument that is made anew for each test."""

    def __init__(self, make):
        self.make = make


def X(*shape):
    return torch.randn(*(shape or (3, 4)))


x, y, row = P(X), P(X), P(lambda: X(4))


class Cases(list):
    """`case = Cases()`; `@case(args...)` above a function; the list is a parametrization, also of what is registered after it."""

    def __call__(self, *args, **kw):
        """kw goes to harness.check."""

        def add(fn):
            self.append(pytest.param(fn, args, kw, id=fn.__name__))
            return fn

        return add


def run(fn, args, kw):
    check(fn, *[a.make() if isinstance(a, P) else a for a in args], **kw)
