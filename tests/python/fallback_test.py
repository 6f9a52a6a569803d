"""Tensors that are not compiled, wrong input, failures, threads: what a user sees is eager's, and the reason is told."""

import copy
import pickle
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn as nn
from harness import same

import braze


class Sub(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


def nested():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        lambda: torch.ones(3).as_subclass(Sub),
        lambda: torch.empty(3, device="meta"),
        nested,
        lambda: torch.ones(3, dtype=torch.complex64).conj(),
    ],
    ids=["sparse", "csr", "quantised", "subclass", "meta", "nested", "conj"],
)
def test_kinds_of_tensors_that_are_not_compiled(make):
    def f(x):
        return x.clone()

    x = make()
    found = braze.explain(f, x)
    want = f(x)
    assert found.graph_count == 0 and type(found.output) is type(want) and found.output.layout == want.layout
    assert any(
        b.name == "UnsupportedTensor" and b.file == __file__ and "x.clone()" in b.source for b in found.breaks
    ), str(found)
    g = braze.compile(f)
    for _ in range(2):
        assert type(g(x)) is type(want)
    with pytest.raises(braze.Unsupported, match="a tensor of a kind that is not compiled"):
        braze.compile(f, fullgraph=True)(x)


@pytest.mark.parametrize(
    "kwargs, error, words",
    [
        ({"backend": "nope"}, ValueError, ["nope", "braze", "eager"]),
        ({"backend": 3}, TypeError, ["callable"]),
        ({"mode": "fastest"}, ValueError, ["fastest", "default", "reduce-overhead", "max-autotune"]),
        ({"options": {"fusion": True}}, ValueError, ["fusion", "fuse"]),
        ({"options": {"fuse": "maybe"}}, (TypeError, ValueError), ["fuse"]),
        ({"fullgraph": "yes"}, TypeError, ["fullgraph"]),
        ({"dynamic": "auto"}, (ValueError, TypeError), ["dynamic"]),
    ],
    ids=["backend", "backend_type", "mode", "option", "option_value", "fullgraph", "dynamic"],
)
def test_wrong_arguments_raise_at_compile(kwargs, error, words):
    with pytest.raises(error) as e:
        braze.compile(lambda x: x, **kwargs)
    for w in words:
        assert w in str(e.value), str(e.value)


def test_fullgraph_error_has_all_that_is_needed():
    def inner(x):
        return x.sum().__array__()

    def f(x):
        return x + inner(x)

    with pytest.raises(braze.Unsupported) as e:
        braze.compile(f, fullgraph=True)(torch.ones(3))
    text = str(e.value)
    for part in (
        __file__,
        f"{inner.__code__.co_firstlineno + 1}",
        "return x.sum().__array__()",
        "a Python number read from a tensor",
        "hint:",
        "keep the value in a tensor",
        f"called from {__file__}:{f.__code__.co_firstlineno + 1}",
    ):
        assert part in text, text


def test_threads():
    m = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    compiled = braze.compile(m)
    xs = [torch.randn(n, 16) for n in (2, 3, 5)]
    wants = [m(x).detach() for x in xs]
    errors = []
    start = threading.Barrier(6)

    def work(i):
        try:
            start.wait()
            with torch.no_grad():
                for k in range(30):
                    j = (i + k) % 3
                    torch.testing.assert_close(compiled(xs[j]), wants[j])
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not errors, errors[0]


def test_state_of_a_compiled_module():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = braze.compile(m)
    x = torch.randn(2, 4)
    compiled(x)
    assert list(compiled.state_dict()) == list(m.state_dict())
    other = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    other.load_state_dict(compiled.state_dict())
    same(other(x).detach(), compiled(x).detach())
    compiled.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})
    same(m(x).detach(), compiled(x).detach())
    twin = copy.deepcopy(compiled)
    same(twin(x).detach(), m(x).detach())
    with torch.no_grad():
        twin[0].weight.zero_()
    assert m[0].weight.abs().sum() > 0
    loaded = pickle.loads(pickle.dumps(compiled))
    same(loaded(x).detach(), m(x).detach())


def test_classes_and_forms():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = nn.Parameter(torch.ones(3))

        @braze.compile
        def forward(self, x, *, twice=False):
            return x * self.k * (2 if twice else 1)

    m = Model()
    x = torch.arange(3.0)
    same(m(x).detach(), x)
    same(m(x, twice=True).detach(), x * 2)

    @braze.compile(fullgraph=True)
    def f(a, *rest, b=2, **more):
        return a * b + sum(rest) + sum(more.values())

    same(f(x, 1, 2, b=3, c=4), x * 3 + 7)
    assert f.__name__ == "f"


def test_compiled_called_in_compiled():
    inner = braze.compile(lambda t: t * 2)

    def f(x):
        return inner(x) + braze.compile(lambda t: t + 3)(x)

    x = torch.ones(3)
    found = braze.explain(f, x)
    assert found.graph_count == 1 and found.graph_break_count == 0, str(found)
    same(found.output, f(x))


def test_torch_compile_with_our_backend():
    f = torch.compile(lambda x: torch.sin(x) + 1, backend="braze")
    x = torch.randn(5)
    same(f(x), torch.sin(x) + 1)


PROGRAM = """
import sys, torch, braze
def f(x):
    sys.stdout.flush()
    return (x * 2).sum()
x = torch.ones(3)
g = braze.compile(f)
assert g(x) == 6 and g(x) == 6
"""


@pytest.mark.parametrize(
    "topic, word",
    [
        ("graph_breaks", "a call to a C function that cannot be traced"),
        ("guards", "L['x']"),
        ("graph", "sum"),
        ("passes", "after decompose"),
        ("kernels", "kernel"),
    ],
)
def test_log_topics(topic, word):
    import os

    r = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "BRAZE_LOGS": topic},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert r.returncode == 0 and word in r.stderr, r.stderr


def test_unknown_log_topic():
    import os

    r = subprocess.run(
        [sys.executable, "-c", "import braze"],
        env={**os.environ, "BRAZE_LOGS": "grafs"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert r.returncode != 0 and "grafs" in r.stderr and "graph_breaks" in r.stderr
