"""Worlds that change between calls, each made twice: one is used by eager code, one by compiled code, and both have to stay alike."""

import types

import torch
from harness import Graphs, same

import braze


class World(types.SimpleNamespace):
    pass


def outcome(f, *args):
    try:
        return "returned", f(*args)
    except Exception as e:
        return "raised", (type(e), str(e))


def stay_alike(make, *changes, seen=lambda w: None, graphs=True):
    """`make` gives a world with a function f(x); each change is made in both. `seen(world)` is compared too."""
    x = torch.ones(2, 3)
    for backend in (Graphs(), "braze"):
        plain, other = make(), make()
        compiled = braze.compile(other.f, backend=backend)
        for change in (lambda w: None, lambda w: None, *changes):
            change(plain), change(other)
            want, got = outcome(plain.f, x), outcome(compiled, x)
            assert want[0] == got[0], (want, got)
            same(want[1], got[1])
            assert seen(plain) == seen(other)
        assert backend == "braze" or not graphs or backend.count, "nothing was compiled"


def caught(f):
    """f, with what it raises in place of a result."""

    def g(x):
        try:
            y = f(x)
        except Exception as e:
            y = type(e).__name__, str(e)
        return x + 1, y

    return g
