"""Times models over inputs of many sizes: eager, torch.compile (inductor) and Braze, each in a fresh process with empty caches.

compilations  graphs compiled over all sizes (dynamic=None: static first, symbolic afterwards)
second s      seconds of the call that compiled for the second size, without a later call's time at that size
mean ms       mean over the sizes of the least time of a call, after all sizes were seen
static ms     the same with every size compiled for itself (--static: Braze only, a few of the sizes, compared on those)

  python -m benchmarks.sizes --models bert,gpt2 --pairs 40
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks.worker import COMPILERS


def sizes(count: int) -> list[tuple[int, int]]:
    """Different (batch, length) pairs, none with a 1."""
    every = [(b, n) for b in (2, 3, 4, 5) for n in range(17, 129)]
    return random.Random(0).sample(every, count)


def run(who: str, model: str, count: int, static: int) -> dict:
    """In the child."""
    import torch

    from benchmarks import suites

    case = suites.build(model)
    if who == "inductor":
        import torch._dynamo

        torch._dynamo.config.recompile_limit = 64
        fn = torch.compile(case.fn)
    elif who == "braze":
        import braze

        fn = braze.compile(case.fn)
    else:
        fn = case.fn

    def least(f, x, calls=3):
        best = float("inf")
        for _ in range(calls):
            t0 = time.perf_counter()
            f(x)
            best = min(best, time.perf_counter() - t0)
        return best

    worst, firsts, pairs = 0.0, [], sizes(count)
    with torch.no_grad():
        for b, n in pairs:
            x = suites.ids(b, n)
            t0 = time.perf_counter()
            got = case.read(fn(x))
            firsts.append(time.perf_counter() - t0)
            if who != "eager":
                want = case.read(case.fn(x))
                worst = max([worst, *(((g - w).abs().max() / w.abs().max()).item() for g, w in zip(got, want))])
        times = [least(fn, suites.ids(b, n)) for b, n in pairs]
        out = {
            "difference": worst,
            "second_s": max(firsts[1] - times[1], 0.0),
            "mean_ms": sum(times) / len(times) * 1e3,
        }
        if who == "inductor":
            out["compilations"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        if who == "braze":
            out["compilations"] = braze.explain(fn, suites.ids(*pairs[0])).compilations
            few = pairs[:static]
            dynamic = alone = 0.0
            for pair in few:
                x = suites.ids(*pair)
                one = braze.compile(case.fn, dynamic=False)
                one(x)
                for _ in range(3):
                    dynamic, alone = dynamic + least(fn, x, 1), alone + least(one, x, 1)
                del one
            if few:
                out["over_static"] = dynamic / alone
    return out


def child(who, model, a) -> dict:
    folder = tempfile.mkdtemp(prefix="braze-bench-")
    names = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "XDG_CACHE_HOME": "xdg", "BRAZE_CACHE_DIR": "braze", "TMPDIR": ""}
    env = {**os.environ, **{k: os.path.join(folder, v) for k, v in names.items()}, "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.sizes",
                "--child",
                who,
                "--models",
                model,
                "--pairs",
                str(a.pairs),
                "--static",
                str(a.static),
            ],
            env=env,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or [""])[-1]}
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="bert,gpt2")
    p.add_argument("--pairs", type=int, default=40)
    p.add_argument("--static", type=int, default=6, help="how many sizes to compile for themselves too")
    p.add_argument("--without", choices=COMPILERS, action="append", default=[])
    p.add_argument("--child", choices=COMPILERS, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        print(json.dumps(run(a.child, a.models, a.pairs, a.static)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{a.pairs} sizes")
    for head in ("model", "compiler", "compilations", "second s", "mean ms", "over static", "difference from eager"):
        table.add_column(head, justify="right")
    failed = False
    for model in a.models.split(","):
        for who in (c for c in COMPILERS if c not in a.without):
            r = child(who, model, a)
            failed |= "failed" in r
            cell = lambda k, f: format(r[k], f) if k in r else ""
            table.add_row(
                model,
                who,
                *(
                    [r["failed"][:90]]
                    if "failed" in r
                    else [
                        cell("compilations", "d"),
                        cell("second_s", ".3f"),
                        cell("mean_ms", ".2f"),
                        cell("over_static", ".3f"),
                        cell("difference", ".1e"),
                    ]
                ),
            )
    Console(width=150).print(table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
