"""Every reason for which code runs uncompiled is one that a program can meet, and its name is what the program's author is told."""

import hashlib
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import braze
from braze import _C

ROOT = Path(__file__).parents[2]
ROWS = dict(re.findall(r'^BRAZE_REASON\((\w+), "(.+?)", ', (ROOT / "src/base/reasons.def").read_text(), re.M))


class Stream:
    def write(self, text):
        self.text = text


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return torch.cat([grad, grad])


def unknown_function(x):
    return x + len(hashlib.md5(b"a").hexdigest())


def prints(x, stream=Stream()):
    print("a", file=stream)
    return x + 1


def branch(x):
    return x + 1 if x.sum() > 0 else x


def number(x):
    return x * x.sum().item()


def decision(x):
    n = int(x.sum())
    return x + 1 if n * n > 3 else x


def break_(x):
    braze.graph_break()
    return x + 1


@braze.disable
def left_alone(x):
    return x


def disabled(x):
    return left_alone(x + 1) + 1


def exception_groups(x):
    try:
        raise ExceptionGroup("", [ValueError()])
    except* ValueError:
        pass
    return x + 1


def identity(x):
    return x.data_ptr() + x


def resized(x):
    x.resize_(5)
    return x + 1


def quantised(x):
    return torch.quantize_per_tensor(x, 1.0, 0, torch.qint8).dequantize()


def to_sparse(x):
    return x.to_sparse()


def of_one_or_none(x):
    return torch.masked_select(x.sum(), x.sum() > 0)


def raises(x):
    raise ValueError("a")


def wrong_gradient(x):
    return WrongGradient.apply(x)


def retained(x):
    y = x.detach().requires_grad_() * 2
    z = y.sin()
    y.retain_grad()
    return z


def packet_of_overloads(x):
    return torch.ops.aten.add(x, 1)


CASES = {
    "UnknownFunction": unknown_function,
    "Print": prints,
    "DataDependentBranch": branch,
    "ScalarFromTensor": number,
    "UnbackedDecision": decision,
    "ExplicitBreak": break_,
    "DisabledFunction": disabled,
    "UnsupportedBytecode": exception_groups,
    "UnsupportedFeature": identity,
    "IntermediateHistory": retained,
    "UnsupportedMutation": resized,
    "UnsupportedTensor": quantised,
    "UnsupportedOp": to_sparse,
    "DynamicOutput": of_one_or_none,
    "TraceFailed": wrong_gradient,
    "RaisedException": raises,
    "PyTorchLacks": packet_of_overloads,
}
# What is to be done to PyTorch before braze is imported
CHANGES = {"PyTorchLacks": "del torch._C._jit_resolve_packet"}


def test_each_row_has_a_program():
    assert set(CASES) == set(ROWS)


@pytest.mark.parametrize("name", CHANGES)
def test_reason_of_another_pytorch(name):
    program = f"import torch; {CHANGES[name]}; import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import reasons_test; reasons_test.test_reason({name!r})"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", [name for name in CASES if name not in CHANGES])
def test_reason(name):
    fn = CASES[name]
    # What depends on values only ends the graph by a decision where the graph must not end.
    compiled = braze.compile(fn, fullgraph=name == "UnbackedDecision")

    def call():
        try:
            return compiled(torch.ones(3, requires_grad=name == "TraceFailed"))
        except Exception as e:
            return e

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result, events = _C.record(compiled, call)
    told = [e["break"]["name"] for e in events if e["break"]]
    if name in ("UnbackedDecision", "TraceFailed"):  # not where a graph ends: of all of it, or of its backward
        told += [n for n, text in ROWS.items() if text in str(result) or any(text in e["status"] for e in events)]
    assert name in told, (told, result, [e["status"] for e in events])
