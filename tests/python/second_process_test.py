"""A second process: what the first one left on disk spares it all stages after the capture, and changes no result.

`times` of braze.explain names the stages that ran.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

CHILD = """
import json, sys, torch, braze
torch.manual_seed(0)

def report(e, error):
    made = sorted(s.removeprefix("backward ") for s in e.times if s.removeprefix("backward ") in ("optimize", "codegen"))
    return {"error": error, "made": made, "kernels": e.kernel_count, "graphs": e.graph_count}

def worst(got, want):
    assert len(got) == len(want)
    return max((a - b).abs().max().item() for a, b in zip(got, want))

def inference(f, *args, **kw):
    with torch.no_grad():
        want = [f(*args)]
        e = braze.explain(f, *args, **kw)
        return report(e, worst([e.output], want))

x, y = torch.randn(24, 32), torch.randn(24, 32)
out = {}
out["plain"] = inference(lambda a: torch.softmax(a * 1.5, -1) + a.mean(0), x)

# The same graph on other tensors that the capture finds: each has its own.
def with_tensor(t):
    return lambda a: torch.tanh(a + t) * 2
out["a tensor"] = inference(with_tensor(y), x)
out["another tensor"] = inference(with_tensor(y * 3), x)
out["a number"] = inference(lambda a: torch.exp(a) * 2.0, x)
out["another number"] = inference(lambda a: torch.exp(a) * 3.0, x)

module = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU(), torch.nn.LayerNorm(48), torch.nn.Linear(48, 8))
def gradients(fn):
    module.zero_grad()
    fn(x).square().sum().backward()
    return [p.grad.clone() for p in module.parameters()]
want = gradients(module)
e = braze.explain(module, x)
out["training"] = report(e, worst(gradients(braze.compile(module)), want))
braze.reset()

# Sizes that are open from the second call on.
f = lambda a: torch.nn.functional.layer_norm(a.sin(), a.shape[-1:]) * a.shape[0]
fast = braze.compile(f, dynamic=True)
sizes = [(5, 16), (9, 20), (130, 64)]
out["sizes"] = report(
    braze.explain(fast, torch.randn(5, 16)),
    max((fast(t) - f(t)).abs().max().item() for t in map(torch.randn, sizes)))

# What is written to a tensor of the caller's.
def write(buffer, a):
    buffer.mul_(0.5).add_(a.relu())
    return buffer.sum()
one, two = y.clone(), y.clone()
want = write(one, x)
e = braze.explain(write, two, x)
out["a write"] = report(e, max((e.output - want).abs().item(), (one - two).abs().max().item()))

# A size that only the run knows.
def chosen(a):
    return (a[a > 0] * 2).sin()
out["a size of data"] = inference(chosen, x)

if sys.argv[1:] == ["off"]:
    e = braze.explain(braze.compile(lambda a: torch.cos(a) * 2, options={"disk_cache": False}), x)
    out["off"] = report(e, worst([e.output], [torch.cos(x) * 2]))
print(json.dumps(out))
"""


def run(folder, *arguments, **variables):
    env = dict(os.environ, BRAZE_CACHE_DIR=str(folder), BRAZE_STRICT="1", **variables)
    child = subprocess.run([sys.executable, "-c", CHILD, *arguments], env=env, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    cases = json.loads(child.stdout.splitlines()[-1])
    for name, case in cases.items():
        assert case["error"] < 1e-4, (name, case)
    return cases


def made(cases):
    return {name: case["made"] for name, case in cases.items()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache") / "braze"
    return folder, run(folder)


def test_a_second_process_runs_no_stage(filled):
    folder, first = filled
    second = run(folder)
    assert all(case["made"] == [] for case in second.values()), made(second)
    for name in first:
        assert {**first[name], "made": []} == {**second[name], "error": first[name]["error"]}, name
    assert "optimize" in first["plain"]["made"] and first["training"]["made"].count("optimize") == 2


def test_equal_graphs_with_other_tensors_share_a_result_and_others_do_not(filled):
    _, first = filled
    assert first["a tensor"]["made"] and not first["another tensor"]["made"]
    assert first["a number"]["made"] and first["another number"]["made"]


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_cache_that_is_off_is_not_read(filled, how):
    folder, _ = filled
    if how == "option":
        assert run(folder, "off")["off"]["made"] and run(folder, "off")["off"]["made"]
    else:
        off = run(folder, BRAZE_FORCE_DISABLE_CACHES="1")
        assert all(case["made"] for case in off.values()), made(off)


@pytest.mark.parametrize("byte", [0, 40, -1])
def test_damaged_results_are_made_anew(filled, tmp_path, byte):
    folder = shutil.copytree(filled[0], tmp_path / "braze")
    for f in folder.iterdir():
        data = bytearray(f.read_bytes())
        data[byte if byte < len(data) else -1] ^= 4
        f.write_bytes(data)
    assert made(run(folder))["plain"]
    assert not made(run(folder))["plain"]


def test_results_travel(filled, tmp_path):
    folder, _ = filled
    pack = "import sys, braze; open(sys.argv[1], 'wb').write(braze.save_cache_artifacts())"
    unpack = "import sys, braze; braze.load_cache_artifacts(open(sys.argv[1], 'rb').read())"
    file = tmp_path / "artifacts"
    for code, where, program in ((pack, folder, CHILD), (unpack, tmp_path / "there", "")):
        env = dict(os.environ, BRAZE_CACHE_DIR=str(where))
        subprocess.run(
            [sys.executable, "-c", program + "\n" + code, str(file)], env=env, check=True, capture_output=True
        )
    there = run(tmp_path / "there")
    assert all(case["made"] == [] for case in there.values()), made(there)
