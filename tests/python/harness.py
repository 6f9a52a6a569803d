"""Runs a function eagerly and compiled and compares all that a user sees: results, exceptions, changed arguments."""

import collections
import copy
import dataclasses

import pytest
import torch

import braze


class Graphs:
    """A backend that counts the graphs it is given and runs them unchanged."""

    def __init__(self):
        self.count, self.modules = 0, []

    def __call__(self, gm, example_inputs):
        self.count += 1
        self.modules.append(gm)
        return gm.forward


def same(want, got, where="result", tol=1e-5):
    """Asserts that two values are equal in type and content; floats and tensors within `tol`."""
    assert type(want) is type(got), f"{where}: {type(got).__name__}, expected {type(want).__name__}"
    if isinstance(want, torch.Tensor):
        assert want.shape == got.shape and want.dtype == got.dtype, (
            f"{where}: {got.shape} {got.dtype}, expected {want.shape} {want.dtype}"
        )
        assert want.stride() == got.stride() or 0 in want.shape, (
            f"{where}: strides {got.stride()}, expected {want.stride()}"
        )
        assert want.requires_grad == got.requires_grad, f"{where}: requires_grad"
        torch.testing.assert_close(
            got.detach(), want.detach(), rtol=tol, atol=tol, equal_nan=True, msg=lambda m: f"{where}: {m}"
        )
    elif isinstance(want, torch.Generator):
        assert torch.equal(want.get_state(), got.get_state()), f"{where}: state of the generator"
    elif isinstance(want, dict):
        assert list(want) == list(got), f"{where}: keys {list(got)}, expected {list(want)}"
        for k in want:
            same(want[k], got[k], f"{where}[{k!r}]", tol)
    elif isinstance(want, (list, tuple, collections.deque)):
        assert getattr(want, "maxlen", None) == getattr(got, "maxlen", None), (
            f"{where}: maxlen {got.maxlen}, expected {want.maxlen}"
        )
        assert len(want) == len(got), f"{where}: {len(got)} parts, expected {len(want)}"
        for i, (a, b) in enumerate(zip(want, got)):
            same(a, b, f"{where}[{i}]", tol)
    elif isinstance(want, float):
        assert want == got or (want != want and got != got) or abs(want - got) <= tol * max(1, abs(want)), (
            f"{where}: {got}, expected {want}"
        )
    elif dataclasses.is_dataclass(want):
        for f in dataclasses.fields(want):
            same(getattr(want, f.name), getattr(got, f.name), f"{where}.{f.name}", tol)
    elif type(want).__eq__ is object.__eq__ and hasattr(want, "__dict__"):
        same(vars(want), vars(got), f"vars({where})", tol)
    else:
        assert want == got, f"{where}: {got!r}, expected {want!r}"


def outcome(fn, args, kwargs):
    try:
        return "returned", fn(*args, **kwargs)
    except Exception as e:
        return "raised", (type(e), str(e))


def check(fn, *args, graphs=1, calls=2, tol=1e-5, **kwargs):
    """Eager against compiled, by the eager backend and by Braze's, `calls` times each on equal copies of the arguments.

    graphs: how many graphs the first call must give (None: any number but zero).
    """
    fresh = lambda: copy.deepcopy((args, kwargs))
    counter = Graphs()
    for backend in (counter, "braze"):
        compiled = braze.compile(fn, backend=backend)
        for call in range(calls):
            (want_args, want_kw), (got_args, got_kw) = fresh(), fresh()
            want, got = outcome(fn, want_args, want_kw), outcome(compiled, got_args, got_kw)
            name = backend if isinstance(backend, str) else "eager"
            assert want[0] == got[0], f"{name}, call {call}: {got}, expected {want}"
            same(want[1], got[1], f"{name}, call {call}: result", tol)
            same(want_args, got_args, f"{name}, call {call}: arguments", tol)
            same(want_kw, got_kw, f"{name}, call {call}: keyword arguments", tol)
            if backend is counter and call == 0:
                if graphs is None:
                    assert counter.count > 0, "nothing was compiled"
                else:
                    assert counter.count == graphs, f"{counter.count} graphs, expected {graphs}"
                first = counter.count
        if backend is counter:
            assert counter.count == first, "an equal call compiled again"


def agrees(f, *args):
    """A checker: eager and both backends agree now; says how often was compiled since it was asked last."""
    counter = Graphs()
    compiled, native = braze.compile(f, backend=counter), braze.compile(f)

    def outcome(fn):
        try:
            return "returned", fn(*args)
        except Exception as e:
            return "raised", (type(e), str(e))

    def now():
        before = counter.count
        want = outcome(f)
        for _ in range(2):
            for g in (compiled, native):
                got = outcome(g)
                assert got[0] == want[0], (want, got)
                same(want[1], got[1])
        return counter.count - before

    assert now() >= 1
    return now


class P:
    """An argument of a test that each run makes anew: a tensor of this shape."""

    def __init__(self, *shape, make=torch.randn):
        self.make = lambda: make(*shape)


class Cases(list):
    """Parameters of a test of functions; `@cases(*arguments, **keywords)` over a function adds one."""

    def __call__(self, *args, **kw):
        def add(fn):
            self.append(pytest.param(fn, args, kw, id=fn.__name__))
            return fn

        return add
