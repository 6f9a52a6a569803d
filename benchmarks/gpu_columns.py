"""Programs in columns, eager beside torch.compile and Braze in their modes: `python -m benchmarks.gpu columns --help`.

Each cell is a process of its own with empty caches. It makes the program's steps once by eager and once compiled, from the same
weights, and compares what they give (decode: each with the same in float64); a cell that differs is not timed. Times are the median of
single steps by CUDA events (on the CPU by the clock). Memory is the most that PyTorch's allocator had allocated and reserved in another fresh process, which makes the
first calls and some more and times nothing: recordings keep their memory from their first calls on, which a later reset of the peak would hide."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

MODES = {
    "eager": ("eager", None),
    "torch": ("torch", None),
    "torch:reduce-overhead": ("torch", "reduce-overhead"),
    "torch:max-autotune-no-cudagraphs": ("torch", "max-autotune-no-cudagraphs"),
    "braze": ("braze", None),
    "braze:reduce-overhead": ("braze", "reduce-overhead"),
    "braze:max-autotune": ("braze", "max-autotune"),
}
STEPS_COMPARED, STEPS_BEFORE, MOST_STEPS = 3, 5, 300


# ---- a cell: the child ----


def compiler(column):
    who, mode = MODES[column]
    if who == "eager":
        return lambda f: f
    if who == "torch":
        import torch

        return lambda f: torch.compile(f, mode=mode)
    import braze

    return lambda f: braze.compile(f, mode=mode)


def make(name, size, device, compiled, exact=False):
    import torch

    from benchmarks.gpu_programs import PROGRAMS

    torch.manual_seed(0)
    program = PROGRAMS[name]
    return (program.exact if exact else program.build)(size, device, compiled)


def wait(device):
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def difference(name, size, device, column):
    """The largest difference from eager, as a share of the largest element, over the first steps, and how much it may be. For a program
    that is known in float64: the largest difference from that, which may be twice eager's."""
    import torch

    from benchmarks.gpu_programs import PROGRAMS

    def steps(compiled, exact=False):
        run = make(name, size, device, compiled, exact)
        return [[t.detach().double().cpu() for t in run()] for _ in range(STEPS_COMPARED)]

    def apart(want, got):
        worst = 0.0
        for w, g in zip(sum(want, []), sum(got, []), strict=True):
            if w.shape != g.shape or not torch.isfinite(g).all():
                return float("inf")
            worst = max(worst, float((w - g).abs().max() / w.abs().max().clamp_min(1e-30)))
        return worst

    eager, got = steps(lambda f: f), steps(compiler(column))
    if not PROGRAMS[name].exact:
        return apart(eager, got), PROGRAMS[name].tolerance
    exact = steps(lambda f: f, exact=True)
    return apart(exact, got), max(2 * apart(exact, eager), 1e-5)


def first_call(name, size, device, column):
    """A run of the program that was compiled, and the seconds of its first call."""
    run = make(name, size, device, compiler(column))
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return run, time.perf_counter() - start


def step_times(run, device, seconds):
    """Milliseconds of single steps."""
    import torch

    out, end = [], time.perf_counter() + seconds
    while (time.perf_counter() < end or len(out) < 5) and len(out) < MOST_STEPS:
        if device == "cuda":
            before, after = (torch.cuda.Event(enable_timing=True) for _ in "ab")
            before.record()
            run()
            after.record()
            after.synchronize()
            out.append(before.elapsed_time(after))
        else:
            start = time.perf_counter()
            run()
            out.append((time.perf_counter() - start) * 1e3)
    return sorted(out)


def timing(name, size, device, column, seconds):
    """After the comparison: what is wrong is not timed."""
    worst, most = difference(name, size, device, column) if column != "eager" else (0.0, 0.0)
    if worst > most:
        return {"error": f"differs by {worst:.2g} of the largest element, more than {most:.2g}"}
    run, _ = first_call(name, size, device, column)
    for _ in range(STEPS_BEFORE):
        run()
    ms = step_times(run, device, seconds)
    return {"difference": worst, "ms": ms[len(ms) // 2], "least_ms": ms[0], "steps": len(ms)}


def memory(name, size, device, column):
    """Also the seconds of the first call, which nothing ran before."""
    import resource

    import torch

    run, first = first_call(name, size, device, column)
    for _ in range(STEPS_BEFORE):
        run()
    wait(device)
    cell = {"first_s": first, "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}
    if device == "cuda":
        cell["allocated_mib"] = torch.cuda.max_memory_allocated() >> 20
        cell["reserved_mib"] = torch.cuda.max_memory_reserved() >> 20
    return cell


def child(job):
    import warnings

    import torch

    warnings.filterwarnings("ignore")
    torch.set_float32_matmul_precision("high")
    what = {"time": timing, "memory": memory}[job.pop("what")]
    print("CELL " + json.dumps(what(**job)), flush=True)
    os._exit(0)  # worker processes of compilers are not waited for


# ---- all cells: the parent ----


def ask(job, limit):
    """The child's answer, or {"error": why}."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "BRAZE_CACHE_DIR")
        env = {**os.environ, "HF_HUB_OFFLINE": "1", **{n: f"{folder}/{n}" for n in names}}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.gpu_columns", json.dumps(job)],
                env=env,
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {limit:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith("CELL "):
            return json.loads(line[5:])
    said = done.stderr.strip().splitlines()
    return {"error": f"exit status {done.returncode}: {said[-1] if said else ''}"}


def cell(name, column, size, device, seconds, limit):
    job = {"name": name, "size": size, "device": device, "column": column}
    out = {"case": name, "mode": column, "size": size, "device": device}
    out.update(ask({"what": "time", "seconds": seconds, **job}, limit))
    if "error" in out:
        return out
    kept = ask({"what": "memory", **job}, limit)
    out.update(kept if "error" not in kept else {"memory_error": kept["error"]})
    from benchmarks.gpu_programs import PROGRAMS

    entry = PROGRAMS[name]
    if entry.work:
        out[f"{entry.unit}_per_s"] = entry.work(size) / out["ms"] * 1e3
    return out


def show(c, eager):
    """A cell's text: milliseconds, how many times as fast as eager, rate, first call, memory."""
    if "error" in c:
        return c["error"][:60]
    text = f"{c['ms']:.3f} ms"
    if eager and "ms" in eager and c is not eager:
        text += f"  {eager['ms'] / c['ms']:.2f}x"
    for unit in ("tokens", "images"):
        if f"{unit}_per_s" in c:
            text += f"\n{c[f'{unit}_per_s']:.0f} {unit}/s"
    if "first_s" in c:
        text += f"\nfirst {c['first_s']:.1f} s"
    if "reserved_mib" in c:
        text += f"\n{c['allocated_mib']} / {c['reserved_mib']} MiB"
    return text


def table(cells, modes):
    from rich.console import Console
    from rich.table import Table

    out = Table(title="milliseconds, times eager; first call; MiB allocated / reserved at most", show_lines=True)
    out.add_column("case")
    for m in modes:
        out.add_column(m)
    for name in dict.fromkeys(c["case"] for c in cells):
        row = {c["mode"]: c for c in cells if c["case"] == name}
        out.add_row(name, *(show(row[m], row.get("eager")) if m in row else "" for m in modes))
    Console(width=max(120, 26 * (len(modes) + 1))).print(out)


def chosen(patterns, names, what):
    """The names that a regular expression of the list matches whole."""
    if not patterns:
        return list(names)
    found = [n for n in names if any(re.fullmatch(p, n) for p in patterns)]
    for p in patterns:
        if not any(re.fullmatch(p, n) for n in names):
            raise SystemExit(f"no {what} {p!r}; there are: {', '.join(names)}")
    return found


def main(arguments):
    import torch

    from benchmarks.gpu_programs import PROGRAMS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu columns", description=__doc__)
    parser.add_argument("--only", metavar="CASE", action="append", help=f"regular expression, of {', '.join(PROGRAMS)}")
    parser.add_argument("--modes", metavar="MODE", action="append", help=f"regular expression, of {', '.join(MODES)}")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=("full", "small"), help="default: full on a GPU, small on a CPU")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing a cell")
    parser.add_argument("--limit", type=float, default=600.0, help="most seconds of a cell's process")
    parser.add_argument("--json", metavar="FILE", help="append a line for each cell as it is known")
    args = parser.parse_args(arguments)
    here = [n for n, p in PROGRAMS.items() if args.device in p.devices]
    names, modes = chosen(args.only, here, "case"), chosen(args.modes, MODES, "mode")
    size = args.size or ("full" if args.device == "cuda" else "small")
    cells = []
    for name in names:
        for column in modes:
            cells.append(cell(name, column, size, args.device, args.seconds, args.limit))
            print(json.dumps(cells[-1]), file=sys.stderr, flush=True)
            if args.json:
                with open(args.json, "a") as file:
                    file.write(json.dumps(cells[-1]) + "\n")
    table(cells, modes)
    return 0 if all("error" not in c for c in cells) else 1


if __name__ == "__main__":
    child(json.loads(sys.argv[1]))
