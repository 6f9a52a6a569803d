"""What one process captured serves another: guards are checked there, nothing is traced; what differs there is seen."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

PRELUDE = """
import json, os, sys
import torch
import braze
torch.manual_seed(0)

def report(*values):
    def plain(v):
        return v.tolist() if isinstance(v, torch.Tensor) else v
    counted = braze.counters()
    print(json.dumps([[plain(v) for v in values], counted["kept_captures"], counted["captures"], counted["graphs"]]))
"""
# Long enough that its capture is worth keeping.
HELPER = """
import torch
FACTOR = 0.5

def step(x, i, scale=1.0):
    return torch.sin(x) * FACTOR + i * scale
"""
MAIN = """
import helper

class Model(torch.nn.Module):
    extra = 0

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-1, 1, 5))
        self.rate = 0.5

    def forward(self, x):
        for i in range(150):
            x = helper.step(x, i) * self.rate
        if self.training:
            x = x + 10
        return x * self.w + self.extra

model = Model().eval()
x = torch.linspace(0, 1, 5)
"""
RUN = """
compiled = braze.compile(model)
with torch.no_grad():
    result = compiled(x)
    assert torch.allclose(result, model(x), rtol=1e-5, atol=1e-5), "the results differ from eager's"
report(result)
"""


class World:
    def __init__(self, folder: pathlib.Path):
        self.folder, self.cache = folder, folder / "cache"
        self.write("helper.py", HELPER)

    def write(self, name: str, text: str):
        (self.folder / name).write_text(text)

    def start(self, text: str, **env: str):
        self.write("program.py", PRELUDE + text)
        env = {
            **os.environ,
            "BRAZE_CACHE_DIR": str(self.cache),
            "BRAZE_STRICT": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        }
        return subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process):
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        values, kept, captures, graphs = json.loads(out.splitlines()[-1])
        return values, kept, captures, graphs

    def run(self, text: str, **env: str):
        return self.finish(self.start(text, **env))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_second_process_traces_nothing(world):
    first = world.run(MAIN + RUN)
    second = world.run(MAIN + RUN)
    assert first[1:] == (0, 1, 1)
    assert second[1:] == (1, 1, 1)
    assert second[0] == first[0]


def test_hashes_of_texts_differ_from_process_to_process(world):
    world.run(MAIN + RUN, PYTHONHASHSEED="1")
    assert world.run(MAIN + RUN, PYTHONHASHSEED="2")[1] == 1


@pytest.mark.parametrize(
    "change",
    [
        "model.rate = 0.25",
        "helper.FACTOR = 0.25",
        "Model.extra = 1",
        "model.extra = 2",
        "model.train()",
        "helper.step = lambda x, i: x + i",
        "helper.step.__defaults__ = (2.0,)",
        "import types; helper.step = types.FunctionType(helper.step.__code__, dict(vars(helper), FACTOR=0.25), 'step', (1.0,))",
        "torch.sin = torch.cos",
        "x = x.double()",
        "x = torch.linspace(0, 1, 4); model.w = torch.nn.Parameter(torch.ones(4))",
        "model.w.requires_grad_(False)",
        "model.register_forward_hook(lambda m, args, out: out * 2)",
        "torch.nn.Module.__call__ = lambda self, *a: self.forward(*a) * 3",
        "Model.forward = lambda self, x: x - 1",
        "del model.rate; Model.rate = property(lambda self: 0.75)",
        "torch.set_default_dtype(torch.float64); x = x.double()",
        "model.__class__ = type('Model', (Model,), {'forward': lambda self, x: x})",
        "import builtins; helper.range = None; Model.forward.__globals__['range'] = lambda n: builtins.range(3)",
    ],
)
def test_what_differs_in_the_second_process_is_seen(world, change):
    """RUN itself compares with eager there."""
    world.run(MAIN + RUN)
    _, kept, _, _ = world.run(MAIN + change + "\n" + RUN)
    assert kept == 0
    # And what was there before still is.
    assert world.run(MAIN + RUN)[1] == 1


@pytest.mark.parametrize(
    "helper",
    [
        HELPER.replace("torch.sin", "torch.cos"),
        HELPER.replace("FACTOR = 0.5", "FACTOR = 0.75"),
        HELPER.replace("scale=1.0", "scale=3.0"),
        HELPER + "\n\nclass step:\n    def __new__(cls, x, i):\n        return x * 0.5\n",
    ],
)
def test_an_edited_module_is_seen(world, helper):
    before = world.run(MAIN + RUN)
    world.write("helper.py", helper)
    after = world.run(MAIN + RUN)
    assert after[1] == 0
    assert after[0] != before[0]


def test_an_edited_class_is_seen(world):
    world.run(MAIN + RUN)
    assert world.run(MAIN.replace("x + 10", "x - 10").replace("* self.w", "/ self.w") + RUN)[1] == 0


def test_objects_that_were_two_and_now_are_one(world):
    text = """
class Mode:
    pass

class Holder:
    a, b = Mode(), Mode()

def f(x, holder):
    for i in range(200):
        x = torch.sin(x) + i
    return x + (1 if holder.a is holder.b else 2)

holder = Holder()
{change}
compiled = braze.compile(f)
x = torch.ones(3)
result = compiled(x, holder)
assert torch.allclose(result, f(x, holder))
report(result)
"""
    world.run(text.format(change=""))
    assert world.run(text.format(change=""))[1] == 1
    assert world.run(text.format(change="Holder.b = Holder.a"))[1] == 0
    assert world.run(text.format(change="holder.b = holder.a"))[1] == 0


def test_slots_in_another_order(world):
    text = """
class Point:
    __slots__ = {slots}

p = Point()
p.x, p.y = 2.0, 3.0

def f(t):
    for i in range(200):
        t = torch.sin(t) * p.x + i
    return t / p.y

compiled = braze.compile(f)
t = torch.ones(3)
result = compiled(t)
assert torch.allclose(result, f(t))
report(result)
"""
    world.run(text.format(slots="('x', 'y')"))
    assert world.run(text.format(slots="('x', 'y')"))[1] == 1
    world.run(text.format(slots="('y', 'x')"))


TRAINING = """
import helper

def f(x, w):
    for i in range(100):
        x = helper.step(x * w, i * 0.01)
    return x.sum()

compiled = braze.compile(f)

def gradients(fn, again):
    x = torch.linspace(0, 1, 5, dtype=torch.double).requires_grad_()
    w = torch.linspace(0.1, 0.2, 5, dtype=torch.double).requires_grad_()
    first = torch.autograd.grad(fn(x, w), (x, w), create_graph=again)
    return first if not again else (*first, *torch.autograd.grad(sum(g.sum() for g in first), (x, w)))

for again in (False, True):
    for a, b in zip(gradients(compiled, again), gradients(f, again)):
        assert torch.allclose(a, b), (a, b)
report(*gradients(compiled, True))
"""


def test_training_with_second_derivatives(world):
    first, second = world.run(TRAINING), world.run(TRAINING)
    assert first[1] == 0
    assert second[1:] == (1, 1, 1)
    assert second[0] == first[0]


OPEN = """
import helper

def f(x, n):
    for i in range(150):
        x = helper.step(x, i)
    return x.reshape(-1, x.shape[1]) + n * x.shape[0]

compiled = braze.compile(f, dynamic=True)
out = []
for rows in {rows}:
    x = torch.linspace(0, 1, rows * 3).reshape(rows, 3)
    out.append(compiled(x, rows + 1))
    assert torch.allclose(out[-1], f(x, rows + 1))
report(*out)
"""


def test_open_sizes(world):
    assert world.run(OPEN.format(rows=(4, 5)))[1:] == (0, 1, 1)
    assert world.run(OPEN.format(rows=(6, 7, 9)))[1:] == (1, 1, 1)


def test_code_for_the_very_sizes_comes_first(world):
    """As in a process that meets one size and then others: the first one's code is for it alone."""
    text = OPEN.replace(", dynamic=True", "")
    assert world.run(text.format(rows=(4, 5)))[1:] == (0, 2, 2)
    assert world.run(text.format(rows=(4, 5, 6)))[1:] == (2, 2, 2)
    assert world.run(text.format(rows=(9, 7)))[1:] == (1, 1, 1)
    assert world.run(text.format(rows=(4,)))[1:] == (1, 1, 1)


BREAKS = """
import helper
seen = []

def inner(x, factor):
    for i in range(120):
        x = helper.step(x, i)
    seen.append(float(x.sum()))  # read by the interpreter
    return x * factor

def f(x, factor):
    y = inner(x, factor) + 1
    for i in range(120):
        y = helper.step(y, i)
    print("in the middle")
    make = lambda v: (v, y)
    return make(factor), {"y": y, "x": x}

compiled = braze.compile(f)
x = torch.ones(3)
(a, b), d = compiled(x, 3)
n = len(seen)
(c, e), g = f(x, 3)
assert a == c == 3 and torch.allclose(b, e) and torch.allclose(d["y"], g["y"]) and d["x"] is x and n == 1
assert abs(seen[0] - seen[1]) < 1e-3
report(b)
"""


def test_code_that_breaks(world):
    first, second = world.run(BREAKS), world.run(BREAKS)
    assert first[1] == 0
    assert second[1] >= 2
    assert second[0] == first[0]


def test_effects_of_the_program_are_its_own(world):
    text = """
import helper

class Counter:
    calls = 0

counter, log, table = Counter(), [], {}

def f(x):
    for i in range(150):
        x = helper.step(x, i)
    counter.calls += 1
    log.append(x)
    table["last"] = counter.calls
    return x

compiled = braze.compile(f)
for k in range(3):
    compiled(torch.ones(2))
assert counter.calls == 3 and len(log) == 3 and table == {"last": 3}
report(log[0])
"""
    first, second = world.run(text), world.run(text)
    assert first[1] == 0 and second[1] >= 1
    assert second[0] == first[0]


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))],
)
def test_tensors_written_as_numbers_come_back_and_others_do_not(world, device):
    text = (
        f"device = {device!r}"
        + """
import helper
held = torch.full((3,), {held}, device=device)

def f(x):
    for i in range(150):
        x = helper.step(x, i)
    x = torch.where(x > 0, x, torch.tensor([0.5, {written}, 2.5], device=device)) + torch.tensor(3)
    return {result}

compiled = braze.compile(f)
x = torch.ones(3, device=device)
assert torch.allclose(compiled(x), f(x))
held.add_(1)
assert torch.allclose(compiled(x), f(x))
report(compiled(x))
"""
    )
    plain = text.format(held=1, written=1.5, result="x")
    world.run(plain)
    assert world.run(plain)[1] == 1
    assert world.run(text.format(held=1, written=1.25, result="x"))[1] == 0
    world.run(text.format(held=1, written=1.5, result="x + held"))
    world.run(text.format(held=2, written=1.5, result="x + held"))


def test_what_holds_in_one_process_only_is_not_kept(world):
    text = """
import helper

def f(x):
    for i in range(150):
        x = helper.step(x, i)
    for name in {"one", "two", "three", "four"}:
        x = x + len(name) * x
    return x + hash("text") % 7

compiled = braze.compile(f)
x = torch.ones(2)
assert torch.allclose(compiled(x), f(x))
report(compiled(x))
"""
    world.run(text)
    assert world.run(text)[1] == 0


def test_damaged_files_are_made_anew(world):
    world.run(MAIN + RUN)
    for file in world.cache.iterdir():
        data = bytearray(file.read_bytes())
        for at in range(200, len(data), 97):
            data[at] ^= 0x55
        file.write_bytes(bytes(data))
    assert world.run(MAIN + RUN)[1] == 0
    assert world.run(MAIN + RUN)[1] == 1


def test_files_travel(world, tmp_path):
    world.run(MAIN + RUN)
    world.cache.rename(tmp_path / "elsewhere")
    world.cache = tmp_path / "elsewhere"
    assert world.run(MAIN + RUN)[1] == 1


def test_switched_off(world):
    world.run(MAIN + RUN)
    assert world.run(MAIN + RUN, BRAZE_FORCE_DISABLE_CACHES="1")[1] == 0
    assert world.run(MAIN + RUN.replace("compile(model)", "compile(model, options={'disk_cache': False})"))[1] == 0


def test_rules_of_the_program_are_asked_anew(world):
    text = """
import helper
{rule}
def f(x):
    for i in range(150):
        x = helper.step(x, i)
    return x

compiled = braze.compile(f)
report(compiled(torch.ones(2)))
"""
    before = world.run(text.format(rule=""))
    rule = "braze.substitute_in_graph(helper.step)(lambda x, i, scale=1.0: x + 1)\n"
    after = world.run(text.format(rule=rule))
    assert after[1] == 0
    assert after[0] != before[0]


def test_processes_at_once(world):
    for _ in range(2):
        processes = [world.start(MAIN + RUN) for _ in range(3)]
        results = [world.finish(p) for p in processes]
        assert all(r[0] == results[0][0] for r in results)
    assert all(r[1] == 1 for r in results)


def test_models_of_the_same_class_lie_beside_each_other(world):
    change = "model.rate = 0.25\n"
    world.run(MAIN + RUN)
    world.run(MAIN + change + RUN)
    assert world.run(MAIN + change + RUN)[1] == 1
    assert world.run(MAIN + RUN)[1] == 1
