"""A fresh Python process that compiles one case with one compiler and answers requests, one JSON line each.

Started by `Worker`; run as `python -m benchmarks.worker COMPILER CASE`. Caches are where the environment says.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time

COMPILERS = ("eager", "inductor", "braze")


class Worker:
    """The parent's end. `ask` raises RuntimeError with the child's last words if it died or was too slow."""

    def __init__(self, compiler: str, case: str, env: dict[str, str]):
        self.log = tempfile.TemporaryFile()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", compiler, case],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, **env},
            text=True,
            bufsize=1,
        )

    def ask(self, op: str, limit: float = 600.0, **more) -> dict:
        try:
            self.child.stdin.write(json.dumps({"op": op, **more}) + "\n")
            self.child.stdin.flush()
        except OSError:
            raise RuntimeError(self.last_words()) from None
        if not select.select([self.child.stdout], [], [], limit)[0]:
            self.close()
            raise RuntimeError(f"no answer within {limit:g} s")
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(self.last_words())
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def last_words(self) -> str:
        self.child.wait()
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f"exit status {self.child.returncode}: {lines[-1] if lines else ''}"

    def close(self):
        self.child.kill()
        self.child.wait()


class Job:
    """The child's end."""

    def __init__(self, compiler: str, name: str):
        import torch

        from benchmarks import suites

        self.torch, self.compiler, self.name, self.suites = torch, compiler, name, suites
        self.case = suites.build(name)
        self.graphs = None

    def load(self):
        if self.compiler == "inductor":
            import torch._dynamo
            import torch._inductor.compile_fx  # noqa: F401
        elif self.compiler == "braze":
            import braze

            self.braze = braze

    def compile(self, **kw):
        if self.compiler == "inductor":
            return self.torch.compile(self.case.fn, **kw)
        return self.braze.compile(self.case.fn, **kw) if self.compiler == "braze" else self.case.fn

    def first(self):
        """Seconds from compile() to the first result (importing the compiler counts), peak memory, and the error against float64."""
        case = self.case
        t0 = time.perf_counter()
        self.load()
        self.fn = self.compile()
        case.step(self.fn)
        seconds = time.perf_counter() - t0
        self.run = lambda: case.step(self.fn)
        self.run()
        self.run()
        memory = peak()  # before the copies and references below
        got = [t.clone() for t in self.run()]
        want = [t.clone() for t in case.step(case.fn)]
        exact_case = self.suites.in_double(case)
        exact = exact_case.step(exact_case.fn)
        worst = lambda a: max(
            ((x.double() - e).abs().max() / e.abs().max().clamp_min(1e-30)).item() for x, e in zip(a, exact)
        )
        own, eager = worst(got), worst(want)
        return {"seconds": seconds, "error_own": own, "error_eager": eager, "memory_mib": memory}

    def time(self, seconds):
        return least(self.run, seconds)

    def explain(self):
        if self.compiler != "braze":
            return {}
        with self.torch.set_grad_enabled(self.case.targets is not None):
            e = self.braze.explain(self.case.fn, *self.case.args)
        return {"graphs": e.graph_count, "breaks": e.graph_break_count}

    def overhead(self, seconds):
        """Microseconds a call when the backend returns a kept result: argument handling, guards and glue alone."""
        kept = []

        def backend(gm, inputs):
            run = getattr(gm, "forward", gm)

            def call(*a):
                if not kept:
                    kept.append(run(*a))
                return kept[0]

            return call

        with self.torch.no_grad():
            self.load()
            fn = self.compile(backend=backend)
            for _ in range(4):
                fn(*self.case.args)
            best, end, t0 = float("inf"), time.perf_counter() + seconds, 0.0
            gc.disable()
            while t0 < end:
                t0 = time.perf_counter()
                for _ in range(20):
                    fn(*self.case.args)
                best = min(best, (time.perf_counter() - t0) / 20)
            gc.enable()
        return {"us": best * 1e6}


def least(run, seconds, clock=time.perf_counter) -> dict:
    """Calls for so many seconds: the shortest by the clock, and how many there were."""
    gc.collect()
    best, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while not calls or time.perf_counter() < end:
        t0 = clock()
        run()
        best, calls = min(best, clock() - t0), calls + 1
    return {"ms": best * 1e3, "calls": calls}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the models print goes to the log
    job = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            job = job or Job(*sys.argv[1:3])
            reply = getattr(job, request.pop("op"))(**request)
        except Exception as e:
            reply = {"error": f"{type(e).__name__}: {e}"[:400]}
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    main()
