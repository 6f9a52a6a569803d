"""Tables 1 to 4 and Figure 4 of the PyTorch 2 paper (Ansel et al., ASPLOS 2024) for this machine.

  1  capture: share of models that work, that give wrong results and that fail; graphs, breaks, operators
  2  overhead: what captured graphs take that run as they are, against eager
  3  speed against eager, by backend, for inference and training, fp32 and bf16
  4  what parts of Braze are worth: each left out

Each (model, system) is a process of its own, with limits of time and memory; the systems of a timed model take turns. What is measured
is appended to measurements.jsonl in --out, and is not measured again: a run that was interrupted goes on. Tables are printed, and
written to tables.json and table1.png to table4.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
from pathlib import Path

from benchmarks.paper import measure, plots, tables, zoo

MODES = ["inference fp32", "inference bf16", "training fp32", "training bf16"]
LIBRARIES = ["transformers", "timm"]
VERSIONS = ["torch", *LIBRARIES, "onnx", "onnxscript", "onnxruntime", "openvino"]


def machine(a: argparse.Namespace) -> dict:
    def version(name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    cpu = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": f"{len(cpu)} x {cpu[0] if cpu else '?'}",
        "threads": a.threads or "PyTorch's choice",
        "clock": a.clock,
        "versions": {name: v for name in VERSIONS if (v := version(name))},
    }


def chosen(names: str | None, default: list[str], error) -> list[str]:
    """Names of models, or of groups of them, such as "timm"."""
    out = []
    for name in names.split(",") if names else default:
        known = [m for m in zoo.ALL if m == name or m.startswith(name + "/")]
        if not known and name not in zoo.suites.MODELS:
            error(f"unknown model {name}; known: {', '.join([*zoo.ALL, *zoo.suites.MODELS])}")
        out += known or [name]
    return [m for m in out if m.split("/")[0] not in LIBRARIES or measure.installed([m.split("/")[0]])]


def main(argv=None):
    p = argparse.ArgumentParser(
        "python -m benchmarks.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--tables", default="1,2,3,4", help="numbers, by commas")
    p.add_argument(
        "--models",
        help="names or groups (plain, transformers, timm), by commas; default: all in table 1, fewer in the others",
    )
    p.add_argument(
        "--systems",
        help='names as in the tables, by commas, such as "Braze,torch.compile,without fusion"; default: all',
    )
    p.add_argument("--quick", action="store_true", help="a handful of models and few rounds: some minutes")
    p.add_argument("--modes", default=",".join(MODES), help="of tables 3 and 4 (which has fp32 only)")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=0.3, help="of calls per round")
    p.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: seconds of all threads of a process, for a machine that others use too; with --threads 1",
    )
    p.add_argument("--threads", type=int, default=0, help="OMP threads (default: PyTorch's choice)")
    p.add_argument("--jobs", type=int, default=1, help="processes at a time in table 1")
    p.add_argument(
        "--limit",
        type=float,
        default=120.0,
        help="seconds for a capture, three times as many for a first call of tables 2 to 4",
    )
    p.add_argument("--memory", type=float, default=8.0, help="GiB that a process may have")
    p.add_argument("--out", type=Path, default=Path("benchmarks/out/paper"))
    a = p.parse_args(argv)
    a.modes, a.systems = a.modes.split(","), a.systems and a.systems.split(",")
    if wrong := [m for m in a.modes if m not in MODES]:
        p.error(f"unknown mode {wrong[0]}; known: {', '.join(MODES)}")
    numbers = [int(n) for n in a.tables.split(",") if n in "1234"]
    if a.quick:
        a.rounds, a.modes = 3, [m for m in a.modes if m.endswith("fp32")]
    if a.clock == "cpu" and a.threads != 1:
        p.error("--clock cpu adds up what threads take: it needs --threads 1")
    store = measure.Store(a.out / "measurements.jsonl")
    made = {}
    for n in numbers:
        default = (zoo.QUICK if n == 1 else zoo.QUICK_TIMED) if a.quick else (zoo.ALL if n == 1 else zoo.TIMED)
        models = chosen(a.models, default, p.error)
        measure.capture_rows(store, models, a) if n == 1 else measure.timed_rows(store, n, models, a)
        made[n] = tables.MAKERS[n](store.rows)
        tables.show(made[n])
    report = {"machine": machine(a), "tables": {n: dataclasses.asdict(t) for n, t in made.items()}}
    (a.out / "tables.json").write_text(json.dumps(report, indent=1))
    files = [a.out / "tables.json", *plots.draw(store.rows, made, a.out)]
    print(f"written: {', '.join(map(str, files))}")


if __name__ == "__main__":
    main()
