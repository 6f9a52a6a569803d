"""fullgraph=True means compiled: whatever would run uncompiled raises, when it would. Without it, it is said once."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from dynamic_test import r
from harness import same
from torch.utils._python_dispatch import TorchDispatchMode

import braze
from braze import _C

X = r(4, 3)


def raises(f, *args, match="", **kw):
    c = braze.compile(f, fullgraph=True, **kw)
    with pytest.raises(braze.Unsupported, match=match or None):
        c(*args)
    with pytest.raises(braze.Unsupported, match=match or None):  # nor the second time
        c(*args)
    assert _C.compilations(c) == 0
    return c


def test_a_break_in_a_later_compilation():
    def f(x, loud):
        if loud:
            braze.graph_break()
        return x * 2

    c = braze.compile(f, fullgraph=True)
    same(c(X, False), X * 2)
    with pytest.raises(braze.Unsupported):
        c(X, True)
    same(c(X, False), X * 2)
    assert _C.compilations(c) == 1


def test_a_break_for_another_size():
    def f(x):
        if x.shape[0] > 5:
            braze.graph_break()
        return x + 1

    c = braze.compile(f, fullgraph=True)
    for n in (3, 4, 5):
        x = r(n)
        same(c(x), x + 1)
    with pytest.raises(braze.Unsupported):
        c(r(6))
    x = r(2)
    same(c(x), x + 1)


def test_a_generator_function():
    def f(x):
        yield x * 2

    raises(f, X, match="generator")
    assert [t.tolist() for t in braze.compile(f)(X)] == [(X * 2).tolist()]


def test_a_coroutine_function():
    async def f(x):
        return x * 2

    raises(f, X, match="coroutine")


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode():
    f = lambda x: x.sin() + 1
    whole, any_way = braze.compile(f, fullgraph=True), braze.compile(f)
    same(whole(X), f(X))
    with Seen() as mode:
        with pytest.raises(braze.Unsupported, match="dispatch mode"):
            whole(X)
        got = any_way(X)
    same(got, f(X))
    assert mode.seen == ["aten.sin.default", "aten.add.Tensor"]
    same(whole(X), f(X))


class ByData(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 if float(g.sum()) > 0 else g * 3


def test_a_backward_that_cannot_be_had(caplog):
    f = lambda x: ByData.apply(x).sin()
    raises(f, X.clone().requires_grad_())
    whole = braze.compile(f, fullgraph=True)
    with torch.no_grad():
        same(whole(X), f(X))
    assert _C.compilations(whole) == 1
    c = braze.compile(f)
    grads = []
    for fn in (f, c, c):
        x = X.clone().requires_grad_()
        fn(x).sum().backward()
        grads.append(x.grad)
    same(grads[0], grads[1]), same(grads[0], grads[2])


def test_errors_of_the_program_are_its_own():
    f = lambda x: x.view(-1, 7)
    with pytest.raises(RuntimeError, match="shape") as e:
        braze.compile(f, fullgraph=True)(X)
    assert not isinstance(e.value, braze.Unsupported)


def test_disabled_by_the_program():
    c = braze.compile(lambda x: (braze.graph_break(), x + 1)[1], fullgraph=True)
    with braze.disable():
        same(c(X), X + 1)


# An error of ours, made: a table of the compiler names a function that is gone.
FAILING = """
import logging, os, sys, torch, braze, braze.polyfills
from braze import _C
kept = braze.polyfills.Hashed
del braze.polyfills.Hashed
x = torch.linspace(-1, 1, 7)
class Key:
    def __hash__(self): return 7
key = Key()
def f(x, s, way):
    return x * s + (hash((key, 1)) == 0) if way else x * s
"""


def failing(program, **env):
    env = {k: v for k, v in {**os.environ, **env}.items() if v}
    return subprocess.run(
        [sys.executable, "-c", FAILING + textwrap.dedent(program)], env=env, capture_output=True, text=True, timeout=120
    )


def test_an_internal_failure_is_of_one_capture():
    done = failing(
        """
        c = braze.compile(f)
        for i in range(40):
            s = 0.1 + i / 100
            torch.testing.assert_close(c(x, s, True), f(x, s, True))
            torch.testing.assert_close(c(x, s, False), f(x, s, False))
        served = _C.compilations(c)
        assert served >= 2, served  # the other way was compiled, before and after the failures
        before = served
        torch.testing.assert_close(c(x.double(), 0.5, False), f(x.double(), 0.5, False))
        for i in range(300):
            torch.testing.assert_close(c(x.double(), i / 3, False), f(x.double(), i / 3, False))
        assert _C.compilations(c) > before
        braze.polyfills.Hashed = kept
        before = _C.compilations(c)
        for i in range(300): c(x, 0.1 + i / 1000, True)
        assert _C.compilations(c) > before
    """,
        BRAZE_STRICT="",
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count("runs uncompiled") == 1 and "internal failure" in done.stderr and "<string>:" in done.stderr
    ), done.stderr


@pytest.mark.parametrize("arguments, strict", [("fullgraph=True", ""), ("", "1")])
def test_an_internal_failure_raises(arguments, strict):
    done = failing(
        f"""
        c = braze.compile(f, {arguments})
        try:
            c(x, 0.25, True)
        except RuntimeError as e:
            print("raised", e)
        torch.testing.assert_close(c(x, 0.25, False), f(x, 0.25, False))
    """,
        BRAZE_STRICT=strict,
    )
    assert done.returncode == 0 and "raised" in done.stdout and "internal failure" in done.stdout, (
        done.stdout + done.stderr
    )


def test_the_log_can_be_turned_off():
    done = failing(
        """
        logging.getLogger("braze").setLevel(logging.ERROR)
        c = braze.compile(f)
        for s in (0.5, 0.25, 0.125, 0.75): torch.testing.assert_close(c(x, s, True), f(x, s, True))
    """,
        BRAZE_STRICT="",
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_what_is_compiled_says_nothing(capfd, caplog):
    c = braze.compile(lambda x: x.sin() + 1)
    same(c(X), X.sin() + 1)
    assert not caplog.records and not capfd.readouterr().err
