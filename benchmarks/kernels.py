"""Single kernels on the CPU: how near they come to the memory's bandwidth, and how soon the C++ target has one.

    python -m benchmarks.kernels            # of the bandwidth
    python -m benchmarks.kernels --compile  # seconds beside torch.compile

Bandwidth: functions that read and write much and compute little, over tensors that no cache holds. Beside each, in turns: a copy that
moves as many bytes (half read, half written, into memory that is there), eager's sum over as many bytes (read only), and eager itself.
GB are 1e9 bytes of the inputs and the output.

Compile time: each function of the micro suite from empty caches, in a process where both compilers have compiled something before:
the first call less the second.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

import braze
from benchmarks import suites

N, D = 16384, 1024


CASES: dict[str, tuple[Callable, list[tuple[int, ...]]]] = {
    "one_line": (suites.one_line, [(N, D)]),
    "add": (lambda a, b: a + b, [(N, D), (N, D)]),
    "swiglu": (suites.swiglu, [(N, D), (N, D)]),
    "residual_norm": (suites.residual_norm, [(N, D), (N, D), (D,), (D,)]),
    "rms_norm": (suites.rms_norm, [(N, D), (D,)]),
    "row_reduce": (suites.row_reduce, [(N, D)]),
    "column_mean": (suites.column_mean, [(N, D)]),
    "full_sum": (suites.full_sum, [(N, D)]),
    "transposed_add": (suites.transposed_add, [(4096, 4096), (4096, 4096)]),
}


def in_turns(calls: dict[str, Callable[[], object]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds a call, of each round; `seconds` of every call in all."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    repeat = {}
    for name, call in calls.items():
        call(), call()
        start = time.perf_counter()
        call()
        repeat[name] = max(1, int(seconds / rounds / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeat[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeat[name])
    return times


def bandwidth(rounds: int, seconds: float) -> None:
    print("| kernel | MiB | copy, GB/s | eager's sum | eager | Braze | of the copy: least, median |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (fn, shapes) in CASES.items():
        torch.manual_seed(0)
        args = [torch.randn(shape) for shape in shapes]
        compiled = braze.compile(fn)
        moved = sum(a.nbytes for a in args) + compiled(*args).nbytes
        source = torch.randn(moved // 8)
        into, whole = torch.empty_like(source), torch.randn(moved // 4)
        times = in_turns(
            {
                "copy": lambda: into.copy_(source),
                "sum": lambda: whole.sum(),
                "eager": lambda: fn(*args),
                "braze": lambda: compiled(*args),
            },
            rounds,
            seconds,
        )
        rates = " | ".join(f"{moved / min(t) / 1e9:.1f}" for t in times.values())
        least = min(times["copy"]) / min(times["braze"])
        median = statistics.median(times["copy"]) / statistics.median(times["braze"])
        print(f"| {name} | {moved >> 20} | {rates} | {least:.2f}, {median:.2f} |", flush=True)


def compile_time() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        os.environ["BRAZE_CACHE_DIR"] = f"{folder}/braze"
        ways = {
            "torch.compile": lambda fn: torch.compile(fn, backend="inductor"),
            "C++": lambda fn: braze.compile(fn, options={"codegen": "cpp"}),
            "LLVM": lambda fn: braze.compile(fn),
        }
        for way in ways.values():
            way(lambda x: x.cos() + 2)(torch.randn(64, 64))
        print("| kernel | torch.compile, s | Braze's C++ target | Braze | C++ target of torch.compile |")
        print("| --- | --- | --- | --- | --- |")
        ratios = []
        for name, build in suites.MICRO.items():
            seconds = {}
            for way, compile_ in ways.items():
                case = build()
                fn, marks = compile_(case.fn), []
                for _ in range(3):
                    marks.append(time.perf_counter())
                    fn(*case.args)
                seconds[way] = marks[1] - marks[0] - (marks[2] - marks[1])
            ratios.append(seconds["C++"] / seconds["torch.compile"])
            print(f"| {name} | {' | '.join(f'{s:.3f}' for s in seconds.values())} | {ratios[-1]:.2f} |", flush=True)
        print(f"\ngeometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, worst {max(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--compile", action="store_true", help="compile times instead of bandwidths")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.6, help="of each call in all")
    options = parser.parse_args()
    with torch.no_grad():
        compile_time() if options.compile else bandwidth(options.rounds, options.seconds)


if __name__ == "__main__":
    main()
