"""Logs that are set at run time, counts, callbacks; functions that the program vouches for; modules compiled in place."""

import binascii
import copy
import math
import operator
import os
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
from harness import same

import braze
from braze import _C


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x).relu()


# ---- logs ----


def test_topics_change_as_the_program_runs(capfd):
    f = braze.compile(lambda x: x + 1, dynamic=False)
    f(torch.ones(2))
    before = braze.set_logs("recompiles", "guards")
    try:
        f(torch.ones(3))
        assert braze.set_logs() == ("recompiles", "guards")
        f(torch.ones(4))
    finally:
        braze.set_logs(*before)
    err = capfd.readouterr().err
    assert err.count("[braze recompiles]") == 1 and err.count("[braze guards]") == 1


def test_topics_of_sizes_and_of_speed(capfd):
    before = braze.set_logs("dynamic", "perf_hints")
    try:
        f = braze.compile(lambda x, w: x @ w + x.shape[0])
        for n in (3, 4):
            f(torch.ones(n, 3), torch.ones(3, 3))
    finally:
        braze.set_logs(*before)
    err = capfd.readouterr().err
    assert "serves sizes and numbers where" in err and ".size(0)" in err.split("[braze dynamic]")[1]
    assert "1 calls of PyTorch's operators beside 1 kernels" in err


def test_unknown_topics():
    with pytest.raises(ValueError, match="no topic 'recompile'; accepted: graph_breaks, recompiles, dynamic"):
        braze.set_logs("guards", "recompile")
    assert braze.set_logs() == ()
    with pytest.raises(TypeError, match="names of topics, not 3"):
        braze.set_logs(3)


# ---- counts and callbacks ----


def test_counters():
    def f(x):
        y = x.sin()
        braze.graph_break()
        return y * 2

    braze.counters(clear=True)
    fast = braze.compile(f, dynamic=False)
    fast(torch.ones(2)), fast(torch.ones(2)), fast(torch.ones(3))
    n = braze.counters()
    assert (n["captures"], n["graphs"], n["recompiles"], n["failures"]) == (4, 4, 2, 0)
    assert n["graph_breaks"] == {"ExplicitBreak": 2}
    assert n["capture_seconds"] > 0 and n["compile_seconds"] > 0 and n["training_graphs"] == 0
    braze.compile(Net())(torch.ones(1, 3)).sum().backward()
    assert braze.counters(clear=True)["training_graphs"] == 1
    assert braze.counters()["captures"] == 0


def test_callbacks():
    told = []

    def f(x):
        return x * 2

    with braze.on_compile(start=lambda c: told.append(("start", c)), end=lambda c: told.append(("end", c))):
        fast = braze.compile(f, name="double")
        fast(torch.ones(2)), fast(torch.ones(2))
    braze.compile(f)(torch.ones(2))
    assert [w for w, _ in told] == ["start", "end"]
    start, end = told[0][1], told[1][1]
    assert start.file == __file__ and start.line == f.__code__.co_firstlineno and start.function.endswith("f")
    assert start.name == "double" and not start.ended and end.ended
    assert end.status == "compiled" and end.kernel_count == 1 and end.seconds > 0 and end.break_reason is None


def test_callbacks_of_breaks_and_errors(monkeypatch):
    told, unraisable = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda e: unraisable.append(e.exc_value))

    def end(c):
        told.append(c.break_reason)
        raise KeyError("mine")

    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    with braze.on_compile(end=end):
        same(braze.compile(f)(torch.ones(2)), torch.full((2,), 2.0))
        with pytest.raises(braze.Unsupported):
            braze.compile(lambda x: (braze.graph_break(), x)[1], fullgraph=True)(torch.ones(2))
    assert told == ["DataDependentBranch", None, "ExplicitBreak"] and all(isinstance(e, KeyError) for e in unraisable)
    with pytest.raises(TypeError, match="start takes a callable on a Compilation, not 3"):
        braze.on_compile(start=3)


def test_a_name_in_profiles():
    f = braze.compile(lambda x: x * 3, name="triple")
    f(torch.ones(2))
    with torch.profiler.profile() as p:
        f(torch.ones(2))
    assert any(e.name.startswith("Torch-Compiled Region: triple ") for e in p.events())
    with pytest.raises(TypeError, match="name: a str is expected, not 3"):
        braze.compile(lambda x: x, name=3)


# ---- modes and caches ----


def test_lite_changes_least():
    f = lambda x: (x.softmax(-1) + torch.rand_like(x)).sum(0)
    fast = braze.compile(f, mode="lite")
    x = torch.randn(50, 60)
    torch.manual_seed(3)
    want = f(x)
    torch.manual_seed(3)
    same(fast(x), want)
    assert braze.explain(fast, x).kernel_count > braze.explain(f, x).kernel_count
    with pytest.raises(ValueError, match="no mode 'light'; accepted: default, lite, reduce-overhead"):
        braze.compile(f, mode="light")


def test_without_caches(tmp_path):
    program = "import braze, torch; print(braze.compile(lambda x: x.sin() + 1)(torch.ones(3)).shape)"
    for variables, files in (({"BRAZE_FORCE_DISABLE_CACHES": "1"}, False), ({}, True)):
        env = {**os.environ, "BRAZE_CACHE_DIR": str(tmp_path), **variables}
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert bool([p for p in tmp_path.rglob("*") if p.is_file()]) == files


def test_artifacts_go_to_another_cache(tmp_path):
    save = """
import braze, torch, sys
assert braze.save_cache_artifacts() is None
with torch.no_grad(): braze.compile(lambda x: x.sin() * 2 + 1)(torch.ones(3))
open(sys.argv[1], "wb").write(braze.save_cache_artifacts())
"""
    load = """
import braze, torch, sys, os
print(braze.load_cache_artifacts(open(sys.argv[1], "rb").read()) > 0)
folder = os.environ["BRAZE_CACHE_DIR"]
files = lambda: {f: os.stat(os.path.join(folder, f)).st_ino for f in os.listdir(folder)}
before = files()
with torch.no_grad(): braze.compile(lambda x: x.sin() * 2 + 1)(torch.ones(3))
used = {os.path.basename(f) for f in braze._C.cache_files()[1]}
print(files() == before and used and used <= set(before))  # found there, and nothing written
"""
    for program, folder, told in ((save, "a", ""), (load, "b", "True\nTrue\n")):
        env = {**os.environ, "BRAZE_CACHE_DIR": str(tmp_path / folder)}
        command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "artifacts")]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, told), done.stderr
    kept = sorted((tmp_path / "b").glob("*.o"))
    assert kept and all(f.stat().st_mode & 0o777 == 0o600 for f in kept)


def test_no_artifacts():
    with pytest.raises(ValueError, match="these are others"):
        braze.load_cache_artifacts(b"something")
    with pytest.raises(TypeError, match="takes the bytes of save_cache_artifacts"):
        braze.load_cache_artifacts("text")
    import io
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as z:
        z.writestr("../outside.o", b"BRAZEOBJ")
    with pytest.raises(ValueError, match="these are others"):
        braze.load_cache_artifacts(file.getvalue())


# ---- functions ----


def test_why_a_function_is_disabled():
    @braze.disable(reason="it reads a file")
    def g(x):
        return x + 1

    @torch.compiler.disable(reason="it writes a file")
    def h(x):
        return x + 1

    for f, why in ((g, "it reads a file"), (h, "it writes a file")):
        (found,) = braze.explain(lambda x: f(x * 2) * 3, torch.ones(2)).breaks
        assert found.name == "DisabledFunction" and why in found.detail


@pytest.mark.parametrize("recursive", [True, False])
def test_disabled_with_what_it_calls(recursive):
    inner = braze.compile(lambda x: x.sin())

    @braze.disable(recursive=recursive)
    def g(x):
        return inner(x)

    g(torch.ones(2))
    assert _C.compilations(inner) == (not recursive)


def test_modules_and_classes_are_disabled():
    net, x = Net(), torch.randn(2, 3)
    off = braze.disable(net, reason="for now")
    assert type(off) is Net and off.inner is net.inner and "forward" not in vars(net)
    found = braze.explain(lambda x: off(x) + 1, x)
    same(found.output, net(x) + 1)
    assert [b.name for b in found.breaks] == ["DisabledFunction"] and "for now" in found.breaks[0].detail
    assert braze.explain(lambda x: net(x) + 1, x).graph_break_count == 0

    @braze.disable
    class Scale:
        def __init__(self, n):
            self.n = n

    assert isinstance(Scale(2), Scale)
    found = braze.explain(lambda x: x * Scale(3).n, x)
    same(found.output, x * 3)
    assert [b.name for b in found.breaks] == ["DisabledFunction"]


@pytest.mark.parametrize("assume", [braze.assume_constant_result, torch.compiler.assume_constant_result])
def test_a_constant_result(assume):
    calls = []

    @assume
    def factor(n):
        calls.append(n)
        return open(os.devnull).read() or n + 1  # nothing that can be captured

    f = braze.compile(lambda x: x * factor(2), fullgraph=True)
    for _ in range(3):
        same(f(torch.ones(2)), torch.full((2,), 3.0))
    assert calls == [2]


def test_a_constant_tensor():
    @braze.assume_constant_result
    def table():
        return torch.arange(3.0) * 2

    f = braze.compile(lambda x: x + table(), fullgraph=True)
    for _ in range(2):
        same(f(torch.ones(3)), torch.tensor([1.0, 3.0, 5.0]))


def test_a_substitute():
    @braze.substitute_in_graph(binascii.crc32, skip_signature_check=True)
    def crc32(data, value=0):
        return len(data)

    f = braze.compile(lambda x: x * binascii.crc32(b"abc"), fullgraph=True)
    same(f(torch.ones(2)), torch.full((2,), 3.0))
    assert binascii.crc32(b"abc") == 891568578

    with pytest.raises(TypeError, match=r"takes \(a, b\), but its substitute \(a\)"):

        @braze.substitute_in_graph(operator.matmul)  # of two operands
        def one(a):
            return a

    with pytest.raises(TypeError, match="a callable to substitute, not 3"):
        braze.substitute_in_graph(3)


@pytest.mark.parametrize("allow", [braze.allow_in_graph, torch.compiler.allow_in_graph])
def test_functions_in_c_that_the_program_vouches_for(allow):
    function, _ = torch._C._jit_get_operation("aten::gelu")
    x = torch.randn(4)
    f = lambda x: function(x * 2)
    allow(function)
    fast = braze.compile(f, fullgraph=True)
    same(fast(x), f(x))
    allow(f)
    same(braze.compile(lambda x: f(x) + 1, fullgraph=True)(x), f(x) + 1)


def test_what_stands_for_no_function():
    for say, match in (
        (braze.allow_in_graph, "a callable, or a list or tuple of them, not 3"),
        (braze.assume_constant_result, "a function in Python, not 3"),
        (braze.mark_static_address, "a tensor, not 3"),
    ):
        with pytest.raises(TypeError, match=match):
            say(3)
    assert braze.allow_in_graph((math.sin,)) == (math.sin,)


def test_breaks_that_are_errors_for_a_while():
    def inner(x):
        if x.sum() > 0:
            return x * 2
        return x

    def f(x):
        y = inner(x) + 1
        with torch._dynamo.error_on_graph_break(True):
            z = y.sin()
            if y.shape[0] > 3:
                z = inner(z)
        return z

    fast = braze.compile(f)
    same(fast(torch.ones(2)), f(torch.ones(2)))  # the break outside is none
    for _ in range(2):
        with pytest.raises(braze.Unsupported, match=r"(?s)error_on_graph_break\(True\).*if x.sum\(\) > 0"):
            fast(torch.ones(4))
    assert not torch._dynamo.utils._error_on_graph_break  # the block was left
    same(fast(torch.ones(3)), f(torch.ones(3)))

    @torch._dynamo.error_on_graph_break(True)
    def g(x):
        return inner(x)

    with pytest.raises(braze.Unsupported):
        braze.compile(g)(torch.ones(2))
    with pytest.raises(braze.Unsupported, match="fullgraph=True"):
        with torch._dynamo.error_on_graph_break(False):
            braze.compile(inner, fullgraph=True)(torch.ones(2))


def test_nested_regions():
    @torch.compiler.nested_compile_region
    def g(x, scale=1.0):
        return x.sin() * scale + 1

    f = lambda x: g(g(x * 2), scale=2.0)
    x = torch.randn(3)
    same(braze.compile(f, fullgraph=True)(x), f(x))


# ---- modules in place ----


def test_a_module_in_place():
    net, x = Net(), torch.randn(2, 3)
    want, names, hooks = net(x), list(net.state_dict()), []
    net.register_forward_hook(lambda m, args, out: hooks.append(type(m)))
    assert braze.compile_module_(net, fullgraph=True, name="net") is net
    same(net(x), want)
    assert type(net) is Net and list(net.state_dict()) == names and hooks == [Net]
    assert _C.compilations(net._compiled_call_impl) == 1
    net(x).sum().backward()
    assert net.inner.weight.grad is not None
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(Net())).train()):
        assert type(twin) is Net
        twin.load_state_dict(net.state_dict())
        same(twin(x), want)
    braze.compile_module_(net, disable=True)
    assert net._compiled_call_impl is None
    same(net(x), want)


def test_parts_of_a_module_in_place():
    model = nn.Sequential(Net(), Net())
    for part in model:
        braze.compile_module_(part)
    x = torch.randn(2, 3)
    want = model[1].inner(model[0].inner(x).relu()).relu()
    same(model(x), want)
    assert [_C.compilations(part._compiled_call_impl) for part in model] == [1, 1]


def test_modules_in_place_and_methods_are_explained():
    net, x = Net(), torch.randn(2, 3)
    braze.compile_module_(net, fullgraph=True)
    found = braze.explain(net, x)
    assert found.graph_count == 1 and found.graph_break_count == 0
    same(found.output, net(x))
    assert braze.explain(nn.Sequential(net, nn.ReLU()), x).graph_count == 1

    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def scale(self, x):
            return x * self.factor

    method = braze.compile(Scaled(3.0).scale)
    same(braze.explain(method, x).output, x * 3)


def test_no_modules_in_place():
    with pytest.raises(TypeError, match="a torch.nn.Module, not .*; braze.compile takes functions"):
        braze.compile_module_(lambda x: x)
    with pytest.raises(TypeError, match="a module that is not compiled"):
        braze.compile_module_(braze.compile(Net()))
    with pytest.raises(ValueError, match="no mode 'fast'"):
        braze.compile_module_(Net(), mode="fast")
