"""`python -m benchmarks.paper` on very small models, in its own processes: every table is measured, printed, written and drawn."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("rich")

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.paper import job, plots, tables, zoo  # noqa: E402


def paper(out, *arguments):
    command = [sys.executable, "-m", "benchmarks.paper", "--out", str(out), "--threads", "1", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, [json.loads(line) for line in (out / "measurements.jsonl").read_text().splitlines()]


def made(out, number):
    return json.loads((out / "tables.json").read_text())["tables"][str(number)]


def drawn(out, number):
    return (out / f"table{number}.png").read_bytes().startswith(b"\x89PNG")


CAPTURE = "Braze,torch.jit.trace,torch.jit.script,torch.fx.symbolic_trace"


def test_a_trace_that_ignores_a_branch_is_wrong(tmp_path):
    arguments = ("--tables", "1", "--models", "plain/branch,plain/counted", "--systems", CAPTURE)
    printed, rows = paper(tmp_path, *arguments)
    found = {(r["model"].split("/")[1], r["system"]): r for r in rows}
    assert {k: r["status"] for k, r in found.items()} == {
        ("branch", "Braze"): "works",
        ("branch", "torch.jit.trace"): "wrong",
        ("branch", "torch.jit.script"): "works",
        ("branch", "torch.fx.symbolic_trace"): "fails",
        ("counted", "Braze"): "works",
        ("counted", "torch.jit.trace"): "wrong",
        ("counted", "torch.jit.script"): "works",
        ("counted", "torch.fx.symbolic_trace"): "wrong",
    }
    assert "on inputs 1" in found["branch", "torch.jit.trace"]["why"]  # those that take the other way
    own = found["branch", "Braze"]
    assert (own["graphs"], own["breaks"], own["resized"]) == (2, 1, "works") and own["operators"] >= 4
    assert "2 of 2 (100 %)" in printed and drawn(tmp_path, 1)
    by_system = {row[0]: row[1:4] for row in made(tmp_path, 1)["rows"]}
    assert by_system["torch.jit.trace"] == ["0 of 2 (0 %)", "2 of 2 (100 %)", "0 of 2 (0 %)"]

    again, same_rows = paper(tmp_path, *arguments)
    assert same_rows == rows and again == printed  # nothing is measured twice


def test_overhead_speed_and_parts(tmp_path):
    systems = "Braze,Lazy Tensors,TorchScript,without fusion,without vector code"
    modes = "inference fp32,training bf16"
    few = ("--rounds", "2", "--seconds", "0.02")
    printed, rows = paper(
        tmp_path, "--tables", "2,3,4", "--models", "plain/mlp", "--systems", systems, "--modes", modes, *few
    )
    measured = {(r["table"], r["mode"]): r["systems"] for r in rows}
    assert {k: set(v) for k, v in measured.items()} == {
        (2, "inference fp32"): {"eager", "Braze", "Lazy Tensors"},
        (3, "inference fp32"): {"eager", "Braze", "TorchScript"},
        (3, "training bf16"): {"eager", "Braze", "TorchScript"},
        (4, "inference fp32"): {"everything", "without fusion", "without vector code"},
    }
    for of in measured.values():
        assert all(len(s["rounds"]) == 2 and min(s["rounds"]) > 0 for s in of.values()), of
    slowed = {row[0]: row[1] for row in made(tmp_path, 4)["rows"]}
    assert slowed["vector code"] > 1 and slowed["CUDA Graphs"] == "absent"
    assert [row[2] for row in made(tmp_path, 3)["rows"]] == ["1 of 1 (100 %)"] * 4
    assert all(drawn(tmp_path, n) for n in (2, 3, 4))
    assert "Table 2" in printed and "Table 3" in printed and "Table 4" in printed


@pytest.mark.parametrize("limit, why", [("--limit=0", "no answer within"), ("--memory=0.01", "more than 0.01 GiB")])
def test_limits(tmp_path, limit, why):
    _, (row,) = paper(tmp_path, "--tables", "1", "--models", "plain/greedy", "--systems", "torch.jit.trace", limit)
    assert row["status"] == "fails" and why in row["why"]


def test_other_results_are_told():
    a = torch.tensor([1.0, 2.0])
    assert (
        not job.same([a], [a * (1 + 1e-5)])
        and job.same([a], [a * 1.01])
        and job.same([a], [a[:1]])
        and job.same([a], [])
    )
    assert job.same([torch.tensor([1.0, torch.nan])], [a])
    check = lambda own, eager: job.as_accurate([own], [eager], [a.double()], torch.float32)
    assert not check(a + 1e-5, a) and check(a + 1e-3, a) and not check(a + 1e-3, a + 5e-4) and check(a * torch.nan, a)


@pytest.mark.parametrize("name", [n for n in zoo.ALL if n.startswith("plain/")])
def test_plain_models_run_in_both_sizes(name):
    for small in (False, True):
        program = zoo.build(name, small)
        with torch.no_grad():
            for args in (program.args, *program.others, program.resized):
                assert all(t.isfinite().all() for t in zoo.tensors(program.fn(*args)))


def test_a_system_that_fails_is_in_the_coverage():
    rounds = lambda ms: {"seconds": 1.0, "rounds": [ms, 2 * ms]}
    systems = [{"eager": rounds(2.0), "Braze": rounds(1.0)}, {"eager": rounds(2.0), "Braze": {"failed": "why"}}]
    rows = [{"table": 3, "model": f"plain/{k}", "mode": "inference fp32", "systems": s} for k, s in enumerate(systems)]
    ((mode, system, works, speed, _, with_failures, *_),) = tables.speeds(rows).rows
    assert (mode, system, works) == ("inference fp32", "Braze", "1 of 2 (50 %)")
    assert speed == pytest.approx(2) and with_failures == pytest.approx(2**0.5)


def test_curve_of_speeds():
    assert plots.curve([1.0, 4.0], 4) == ([4.0, 4.0, 1.0], [0.0, 25.0, 50.0])  # two of four fail
