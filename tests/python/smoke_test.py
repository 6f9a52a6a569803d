"""What each wheel is asked after its installation, by tools/wheel_check.sh: needs pytest and nothing else of the tests."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import braze


def run(program, **variables):
    environment = dict(os.environ, BRAZE_STRICT="1", **variables)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def test_inference():
    m, x = model(), torch.randn(8, 16)
    with torch.no_grad():
        seen = braze.explain(m, x)
        torch.testing.assert_close(braze.compile(m)(x), m(x))
    assert seen.graph_count == 1 and seen.kernel_count > 0 and not seen.breaks


def test_attention():
    m = nn.TransformerEncoderLayer(32, 4, batch_first=True, dropout=0.0).eval()
    x = torch.randn(2, 9, 32)
    with torch.no_grad():
        torch.testing.assert_close(braze.compile(m, fullgraph=True)(x), m(x), atol=1e-5, rtol=1e-5)


def test_training():
    def train(m, step):
        optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
        torch.manual_seed(1)
        losses = []
        for _ in range(5):
            x, y = torch.randn(8, 16), torch.randint(4, (8,))
            loss = nn.functional.cross_entropy(step(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses, [p.detach() for p in m.parameters()]

    eager, compiled = model(), model()
    torch.testing.assert_close(train(compiled, braze.compile(compiled)), train(eager, eager), atol=1e-4, rtol=1e-4)


def test_dynamic_sizes_share_code():
    fast = braze.compile(lambda x: (x * 2 + x.shape[0]).softmax(-1))
    before = braze.counters()["captures"]
    for n in (3, 5, 7, 11):
        x = torch.randn(n, 6)
        torch.testing.assert_close(fast(x), (x * 2 + n).softmax(-1))
    assert braze.counters()["captures"] == before + 2


def test_a_graph_break_goes_on():
    def f(x):
        y = x.sin()
        if y.sum() > 0:
            return y + 1
        return y - 1

    seen = braze.explain(f, torch.ones(3))
    assert [b.name for b in seen.breaks] == ["DataDependentBranch"]
    fast = braze.compile(f)
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(fast(x), f(x))
    with pytest.raises(braze.Unsupported, match="smoke_test.py:"):
        braze.compile(f, fullgraph=True)(torch.ones(3))


def test_exceptions_and_messages():
    def divide(x, n):
        try:
            return x * (1 / n)
        except ZeroDivisionError:
            raise ValueError("n is 0") from None

    fast, x = braze.compile(divide), torch.ones(2)
    torch.testing.assert_close(fast(x, 4), x / 4)
    with pytest.raises(ValueError, match="n is 0"):
        fast(x, 0)
    with pytest.raises(ValueError, match="no mode 'fastest'; accepted: "):
        braze.compile(divide, mode="fastest")


def test_state_and_side_effects():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))
            self.calls = []

        def forward(self, x):
            self.seen += x.shape[0]
            self.calls.append(len(self.calls))
            return x + self.seen

    m = Counts()
    fast = braze.compile(m)
    for n in (2, 3):
        fast(torch.zeros(n, 1))
    assert m.seen.item() == 5 and m.calls == [0, 1]


PROGRAM = """
import torch, braze
def f(x):
    return (x.exp() + 1).log().sum(-1)
x = torch.linspace(-1, 1, 12).reshape(3, 4)
torch.testing.assert_close(braze.compile(f)(x), f(x))
print("right")
"""


def test_a_second_process_finds_the_kernels(tmp_path):
    def kernels():
        done = run(PROGRAM, BRAZE_CACHE_DIR=str(tmp_path))
        assert done.stdout == "right\n", done.stderr
        return {path.name: path.stat().st_ino for path in tmp_path.glob("*.o")}

    first = kernels()
    held = [open(path) for path in tmp_path.glob("*.o")]  # so that a file that is written anew has another number
    assert first and kernels() == first and held


def test_another_pytorch_is_a_sentence():
    done = run("import torch; torch.__version__ = '2.99.0'; import braze")
    assert done.stderr.splitlines()[-1].startswith("ImportError: braze was built for PyTorch 2.")


# LLVM twice in one process, with every symbol of each in view of the other: each calls its own.
OTHERS = {
    "llvmlite": """
import llvmlite.binding as llvm
def work():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    module = llvm.parse_assembly("define i32 @add(i32 %a, i32 %b) { %c = add i32 %a, %b\\n ret i32 %c }")
    engine.add_module(module)
    engine.finalize_object()
    import ctypes
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(engine.get_function_address("add"))(2, 3) == 5
""",
    "triton": """
import triton
from triton._C import libtriton
def work():
    libtriton.llvm.init_targets()
    translate = libtriton.llvm.translate_to_asm
    flags = [False] * translate.__doc__.count(": bool")  # Triton's versions differ in how many
    text = "define void @empty() { ret void }"
    assert ".func empty()" in translate(text, "nvptx64-nvidia-cuda", "sm_80", "", [], *flags)
""",
}


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("other", OTHERS)
def test_beside_another_llvm(other, order):
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    load = OTHERS[other]
    ours = "\n".join(["def ours():", *("    " + line for line in PROGRAM.strip().splitlines()[1:])])
    imports = ["import torch, braze, braze._C", load]
    if order == "before":
        imports.reverse()
    program = "import os, sys\nsys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)\n" + "\n".join(imports) + "\n" + ours
    done = run(program + "\nwork()\nours()\nwork()\n", BRAZE_CACHE_DIR="/nonexistent")
    assert done.stdout == "right\n", done.stderr
