"""What is done where compiled code is asked for: braze.set_stance and torch.compiler.set_stance, recompile_limit, torch._dynamo.config."""

import logging
import subprocess
import sys

import pytest
import torch
from harness import same

import braze
from braze import _C


def made(f=lambda x: x.sin() * 2 + 1, **kw):
    return braze.compile(f, **kw)


BOTH = pytest.mark.parametrize("set_stance", [braze.set_stance, torch.compiler.set_stance], ids=["ours", "torchs"])


@pytest.fixture(autouse=True)
def default_stance():
    yield
    torch.compiler.set_stance("default")
    braze.set_stance("default")


@BOTH
def test_force_eager(set_stance):
    f, x = made(), torch.randn(3)
    with set_stance("force_eager"):
        same(f(x), x.sin() * 2 + 1)
        assert _C.compilations(f) == 0
    f(x)
    assert _C.compilations(f) == 1
    with set_stance("force_eager"):
        ran = []
        g = braze.compile(lambda x: (ran.append(torch.compiler.is_compiling()), x)[1])
        g(x)
        assert ran == [False]


@BOTH
def test_eager_on_recompile(set_stance):
    f = made(dynamic=False)
    f(torch.ones(3))
    with set_stance("eager_on_recompile"):
        for n in (3, 4, 5):
            same(f(torch.ones(n)), torch.ones(n).sin() * 2 + 1)
    assert _C.compilations(f) == 1


@BOTH
def test_fail_on_recompile(set_stance):
    f = made(dynamic=False)
    f(torch.ones(3))
    with set_stance("fail_on_recompile"):
        same(f(torch.ones(3)), torch.ones(3).sin() * 2 + 1)
        with pytest.raises(RuntimeError, match=r"(?s)stance_test.py:\d+.*the stance fail_on_recompile forbids.*size"):
            f(torch.ones(4))
    f(torch.ones(4))
    assert _C.compilations(f) == 2


@BOTH
@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_eager_then_compile(set_stance, stance):
    f = made()
    with set_stance(stance):
        for n, compiled in ((3, 0), (4, 1), (5, 1), (6, 1)):  # the size that varied is known at the second call
            same(f(torch.ones(n)), torch.ones(n).sin() * 2 + 1)
            assert _C.compilations(f) == compiled


def test_as_a_function_a_block_and_a_decorator():
    f, x = made(), torch.ones(2)
    braze.set_stance("force_eager")
    f(x)
    with braze.set_stance("default"):
        f(x)
        assert _C.compilations(f) == 1
    f(torch.ones(2, dtype=torch.float64))
    assert _C.compilations(f) == 1
    braze.set_stance("default")

    @braze.set_stance("force_eager")
    def run(n):
        return f(torch.ones(n, dtype=torch.int32))

    run(2)
    assert _C.compilations(f) == 1
    f(torch.ones(2, dtype=torch.int32))
    assert _C.compilations(f) == 2


def test_after_a_graph_break():
    def f(x):
        y = x.sin()
        braze.graph_break()
        return y * 2

    fast = braze.compile(f)
    fast(torch.ones(3))
    with braze.set_stance("eager_on_recompile"):
        same(fast(torch.ones(4, 4)), f(torch.ones(4, 4)))
    assert _C.compilations(fast) == 2


def test_unknown_stances():
    with pytest.raises(ValueError, match="no stance 'eager'; accepted: default, force_eager, eager_on_recompile"):
        braze.set_stance("eager")
    with pytest.raises(ValueError, match="no stance 3; accepted"):
        braze.set_stance(3)


def test_recompile_limit(caplog):
    f = made(dynamic=False, recompile_limit=2)
    with caplog.at_level(logging.WARNING, logger="braze"):
        for n in (2, 3, 4, 5, 2, 3):
            same(f(torch.ones(n)), torch.ones(n).sin() * 2 + 1)
    assert _C.compilations(f) == 2
    assert caplog.text.count("compiled 2 times, which is the recompile_limit") == 1


def test_recompile_limit_of_one_graph():
    f = made(dynamic=False, recompile_limit=1, fullgraph=True)
    f(torch.ones(2))
    with pytest.raises(RuntimeError, match="which is the recompile_limit"):
        f(torch.ones(3))


def test_a_high_limit_keeps_more():
    f = made(dynamic=False, recompile_limit=100)
    for _ in range(2):
        for n in range(2, 82):
            f(torch.ones(n))
    assert _C.compilations(f) == 80


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2", True, 2**31])
def test_no_limits(limit):
    with pytest.raises(ValueError, match="recompile_limit: None or an int from 1 to 2147483647 is expected"):
        made(recompile_limit=limit)


def config(**kw):
    import torch._dynamo

    return torch._dynamo.config.patch(**kw)


def test_pytorchs_recompile_limit():
    f = made(dynamic=False)
    with config(recompile_limit=3):
        for n in range(2, 9):
            f(torch.ones(n))
    assert _C.compilations(f) == 3
    g = made(dynamic=False)
    for n in range(2, 14):  # its default does not bind here
        g(torch.ones(n))
    assert _C.compilations(g) == 12


def test_pytorchs_numbers_in_graphs():
    f = lambda x: x * x.sum().item() + 1
    x = torch.randn(3)
    assert braze.explain(f, x).graph_break_count == 1
    with config(capture_scalar_outputs=True):
        found = braze.explain(f, x)
    assert found.graph_break_count == 0 and found.graph_count == 1
    same(found.output, f(x))


def test_pytorchs_dynamic_sizes():
    with config(automatic_dynamic_shapes=False):
        f = made()
        for n in (2, 3, 4):
            f(torch.ones(n))
        assert _C.compilations(f) == 3
    with config(assume_static_by_default=False):
        f = made()
        for n in (2, 3, 4):
            f(torch.ones(n))
        assert _C.compilations(f) == 1


def test_pytorchs_error_on_recompile_and_disable():
    f = made(dynamic=False)
    with config(error_on_recompile=True):
        f(torch.ones(2))
        with pytest.raises(RuntimeError, match="error_on_recompile of torch._dynamo.config forbids"):
            f(torch.ones(3))
    with config(disable=True):
        same(f(torch.ones(4)), torch.ones(4).sin() * 2 + 1)
    assert _C.compilations(f) == 1


def test_the_config_is_not_loaded_to_be_read():
    program = (
        "import sys, torch, braze\nf = braze.compile(lambda x: x + 1)\n"
        "with braze.set_stance('eager_then_compile'):\n    f(torch.ones(2)), f(torch.ones(3))\n"
        "braze.install(); m = torch.nn.Linear(2, 2); m.compile(); m(torch.ones(1, 2)).sum().backward()\n"
        "g = torch.compile(lambda x: x + 1); g(torch.ones(2)); torch.compiler.reset()\n"
        "h = torch.compile(torch.compiler.disable(lambda x: x)); torch.compiler.cudagraph_mark_step_begin()\n"
        "with torch.compiler.set_stance('force_eager'): g(torch.ones(2))\n"
        "print(braze.counters()['graphs'], sorted(m for m in sys.modules if m.startswith('torch._dynamo')))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.stdout == "3 []\n", done.stdout + done.stderr
