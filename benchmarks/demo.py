"""The main job, shown: three models from public model code with random weights, eager beside compiled."""

from __future__ import annotations

import time

import torch

from benchmarks import suites


def best(f, seconds=2.0):
    least, end, t0 = float("inf"), time.perf_counter() + seconds, 0.0
    while t0 < end:
        t0 = time.perf_counter()
        f()
        least = min(least, time.perf_counter() - t0)
    return least


@torch.no_grad()
def main():
    import braze
    from rich.console import Console
    from rich.table import Table

    console = Console(width=140)
    table = Table(title="Braze: eager against compiled, on this machine's CPU")
    for head in (
        "model",
        "largest difference",
        "eager ms",
        "compiled ms",
        "speed-up",
        "first call s",
        "graphs",
        "graph breaks",
        "kernels",
        "extern calls",
    ):
        table.add_column(head, justify="left" if head == "model" else "right")
    for name in ("gpt2", "bert", "resnet18"):
        case = suites.build(name)
        want = case.read(case.fn(*case.args))
        t0 = time.perf_counter()
        compiled = braze.compile(case.fn)
        got = case.read(compiled(*case.args))
        first = time.perf_counter() - t0
        worst = max(((g - w).abs().max() / w.abs().max()).item() for g, w in zip(got, want))
        if not worst < 1e-3:
            raise SystemExit(f"{name}: compiled and eager differ by {worst}")
        eager, fast = best(lambda: case.fn(*case.args)), best(lambda: compiled(*case.args))
        e = braze.explain(case.fn, *case.args)
        table.add_row(
            name,
            f"{worst:.1e}",
            f"{eager * 1e3:.1f}",
            f"{fast * 1e3:.1f}",
            f"{eager / fast:.2f}x",
            f"{first:.2f}",
            str(e.graph_count),
            str(e.graph_break_count),
            str(e.kernel_count),
            str(e.extern_count),
        )
    console.print(table)


if __name__ == "__main__":
    main()
