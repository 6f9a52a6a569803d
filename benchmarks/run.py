"""Times eager PyTorch, torch.compile (inductor) and Braze beside each other, in one run.

Each figure comes from fresh child processes with empty cache folders:
  cold      seconds from compile() to the first result, empty caches (importing the compiler counts)
  second    the same in a second process with the caches that the first one left
            both hold one run of the program; "compile" in the summary is each without the steady time of a call
  steady    milliseconds a call: rounds of all compilers in turn; minimum, and the median of the rounds
  overhead  microseconds a call with a backend that returns a kept result (--overhead)
  memory    peak resident MiB of the second process over its first three calls
  error     largest error against float64, as a multiple of eager's own

Writes a table, results.json and results.png into --out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.suites import SUITES
from benchmarks.worker import COMPILERS, Worker


def caches(folder: str) -> dict[str, str]:
    names = {
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "XDG_CACHE_HOME": "xdg",
        "BRAZE_CACHE_DIR": "braze",
        "TRITON_CACHE_DIR": "triton",
    }
    return {k: os.path.join(folder, v) for k, v in names.items()} | {"TMPDIR": folder, "HF_HUB_OFFLINE": "1"}


def measure(case: str, compilers: list[str], a: argparse.Namespace) -> dict:
    rows, workers, folders = {}, {}, []
    env = {"OMP_NUM_THREADS": str(a.threads)} if a.threads else {}
    try:
        for who in compilers:
            folder = tempfile.mkdtemp(prefix="braze-bench-")
            folders.append(folder)
            row = rows[who] = {}
            try:
                if who != "eager":
                    w = Worker(who, case, caches(folder) | env)
                    row["cold"] = w.ask("first")["seconds"]
                    w.close()
                w = workers[who] = Worker(who, case, caches(folder) | env)
                first = w.ask("first")
                row["second"], row["memory"] = first["seconds"], first["memory_mib"]
                row["error"] = first["error_own"] / max(first["error_eager"], 1e-30) if first["error_own"] else 0.0
                row.update(w.ask("explain"))
                if a.overhead and who != "eager":
                    o = Worker(who, case, caches(folder) | env)
                    row["overhead"] = min(o.ask("overhead", seconds=a.seconds)["us"] for _ in range(3))
                    o.close()
            except RuntimeError as e:
                row["failed"] = str(e)
        rounds = {who: [] for who in compilers}
        for _ in range(a.rounds):
            for who in compilers:
                if "failed" not in rows[who]:
                    reply = workers[who].ask("time", seconds=a.seconds)
                    rounds[who].append(reply["ms"])
        for who, t in rounds.items():
            if t:
                rows[who].update(ms=min(t), median=statistics.median(t))
    finally:
        for w in workers.values():
            w.close()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    return rows


def ratio(x, y):
    return x / y if x and y else None


def alone(row, what):
    """Seconds of a first call without the program's own run."""
    return max(row[what] - row["ms"] / 1e3, 1e-6) if what in row and "ms" in row else None


def geomean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def show(results: dict[str, dict], compilers: list[str]):
    from rich.console import Console
    from rich.table import Table

    table = Table(title="eager, inductor and Braze, one run")
    for head in (
        "case",
        "compiler",
        "cold s",
        "second s",
        "steady ms",
        "median ms",
        "x eager",
        "x inductor",
        "overhead us",
        "MiB",
        "error",
        "graphs",
    ):
        table.add_column(head, justify="left" if head in ("case", "compiler") else "right")
    number = lambda v: "" if v is None else f"{v:.3g}"
    for case, rows in results.items():
        for who in compilers:
            r = rows[who]
            if "failed" in r:
                table.add_row(case, who, "[red]failed[/]", r["failed"][:80])
                continue
            table.add_row(
                case,
                who,
                number(r.get("cold")),
                number(r["second"]) if who != "eager" else "",
                number(r["ms"]),
                number(r["median"]),
                number(ratio(rows["eager"].get("ms"), r["ms"])),
                number(ratio(rows.get("inductor", {}).get("ms"), r["ms"])),
                number(r.get("overhead")),
                number(r["memory"]),
                number(r["error"]),
                str(r.get("graphs", "")),
            )
    Console(width=160).print(table)


def summary(results: dict[str, dict], compilers: list[str]) -> dict:
    out = {}
    for suite, names in SUITES.items():
        rows = [results[n] for n in names if n in results and "failed" not in results[n].get("braze", {"failed": 1})]
        if rows:
            out[suite] = {
                "steady eager/braze": geomean(ratio(r["eager"].get("ms"), r["braze"].get("ms")) for r in rows)
            }
            if "inductor" in compilers:
                out[suite] |= {
                    f"{what} inductor/braze": geomean(ratio(r["inductor"].get(key), r["braze"].get(key)) for r in rows)
                    for what, key in (("steady", "ms"), ("cold", "cold"), ("second", "second"), ("memory", "memory"))
                }
                out[suite] |= {
                    f"{what} compile inductor/braze": geomean(
                        ratio(alone(r["inductor"], what), alone(r["braze"], what)) for r in rows
                    )
                    for what in ("cold", "second")
                }
    return out


def plot(results: dict[str, dict], compilers: list[str], path: Path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(results)
    fig, (left, right) = plt.subplots(2, 1, figsize=(max(8, 0.9 * len(names)), 8), layout="constrained")
    colours = {"eager": "#999999", "inductor": "#d98c3f", "braze": "#2a6fb0"}
    width = 0.8 / len(compilers)
    for k, who in enumerate(compilers):
        x = [i + (k - (len(compilers) - 1) / 2) * width for i in range(len(names))]
        speed = [ratio(results[n]["eager"].get("ms"), results[n][who].get("ms")) or 0 for n in names]
        left.bar(x, speed, width, label=who, color=colours[who])
        if who != "eager":
            right.bar(x, [results[n][who].get("cold") or 0 for n in names], width, label=who, color=colours[who])
    left.axhline(1, color="black", lw=0.6)
    left.set_ylabel("speed, eager = 1")
    right.set_ylabel("cold first call, s")
    right.set_yscale("log")
    for ax in (left, right):
        ax.set_xticks(range(len(names)), names, rotation=35, ha="right")
        ax.legend()
    fig.savefig(path, dpi=110)


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    p.add_argument("--cases", help="comma-separated names instead of a suite")
    p.add_argument("--without", choices=COMPILERS[1:], action="append", default=[], help="leave a compiler out")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=1.0, help="of calls per round")
    p.add_argument("--threads", type=int, default=0, help="OMP threads (default: PyTorch's choice)")
    p.add_argument("--overhead", action="store_true", help="time the call path too")
    p.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    a = p.parse_args(argv)
    known = [n for names in SUITES.values() for n in names]
    cases = a.cases.split(",") if a.cases else known if a.suite == "all" else SUITES[a.suite]
    for c in cases:
        if c not in known:
            p.error(f"unknown case {c}; known: {', '.join(known)}")
    compilers = [c for c in COMPILERS if c not in a.without]
    results = {}
    for case in cases:
        print(f"{case} ...", file=sys.stderr, flush=True)
        results[case] = measure(case, compilers, a)
    show(results, compilers)
    figures = summary(results, compilers)
    print(json.dumps(figures, indent=1))
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "results.json").write_text(json.dumps({"summary": figures, "results": results}, indent=1))
    plot(results, compilers, a.out / "results.png")
    print(f"written: {a.out}/results.json, {a.out}/results.png")
    failed = [c for c, rows in results.items() for r in rows.values() if "failed" in r]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
