"""What the process of one (system, model) does."""

from __future__ import annotations

import copy
import dataclasses
import time
import warnings

import torch

from benchmarks import suites
from benchmarks.paper import backends, capture, zoo
from benchmarks.worker import least

# What results may differ by, beside eager's own error against float64: the order of additions is another.
TIMES_EAGER, TOLERANCE = 4, {torch.float32: 1e-4, torch.bfloat16: 3e-2}


def same(got: list[torch.Tensor], want: list[torch.Tensor], limit: float = 1e-3) -> str:
    """ "" or how two lists of results differ."""
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    for k, (a, b) in enumerate(zip(got, want)):
        if a.shape != b.shape:
            return f"result {k} has sizes {tuple(a.shape)} instead of {tuple(b.shape)}"
        if not torch.allclose(a.double(), b.double(), rtol=0, atol=limit * scale_of(b), equal_nan=True):
            return f"result {k} differs by {(a.double() - b.double()).abs().max().item():.3g}"
    return ""


def scale_of(t: torch.Tensor) -> float:
    t = t.double()
    return max(t[t.isfinite()].abs().max().item(), 1e-6) if t.isfinite().any() else 1e-6


def as_accurate(got, eager, exact, dtype) -> str:
    """The same against float64: each result may be as far from it as eager's is, times a little, and a tolerance."""
    if len(got) != len(exact):
        return f"{len(got)} results instead of {len(exact)}"
    largest = max(map(scale_of, exact))
    for k, (a, b, e) in enumerate(zip(got, eager, exact)):
        if a.shape != e.shape:
            return f"result {k} has sizes {tuple(a.shape)} instead of {tuple(e.shape)}"
        own, theirs = ((t.double() - e).abs().max().item() for t in (a, b))
        if not own <= TIMES_EAGER * theirs + TOLERANCE[dtype] * max(scale_of(e), 1e-3 * largest):
            return f"result {k} is {own:.3g} from float64, eager's {theirs:.3g}, of {scale_of(e):.3g}"
    return ""


class Job:
    def __init__(self, system: str, name: str):
        warnings.simplefilter("ignore")
        self.system, self.name = system, name

    # ---- table 1 ------------------------------------------------------------------------------------------------------

    def capture(self) -> dict:
        """Status "works", "wrong" (other results than eager's, with what it was captured on or other values) or "fails"."""
        program = zoo.build(self.name)
        inputs = [program.args, *program.others]
        with torch.no_grad():
            reference = copy.deepcopy(program.fn)
            want = [zoo.tensors(reference(*args)) for args in inputs]
            want_resized = zoo.tensors(reference(*program.resized)) if program.resized else None
            saved = copy.deepcopy(program.fn.state_dict())
            start = time.perf_counter()
            try:
                captured = capture.SYSTEMS[self.system](program)
                program.fn.load_state_dict(saved)  # capture may have run the model
                got = [t.clone() for t in zoo.tensors(captured.run(*program.args))]
                reply = {"seconds": time.perf_counter() - start, **dataclasses.asdict(captured.counts())}
            except Exception as e:
                return {"status": "fails", "why": f"{type(e).__name__}: {e}"[:300]}
            for k, (args, expected) in enumerate(zip(inputs, want)):
                try:
                    difference = same(got if k == 0 else zoo.tensors(captured.run(*args)), expected)
                except Exception as e:
                    return reply | {"status": "fails", "why": f"on inputs {k}: {type(e).__name__}: {e}"[:300]}
                if difference:
                    return reply | {"status": "wrong", "why": f"on inputs {k}: {difference}"}
            return reply | {"status": "works", "resized": self.resized(captured, program, want_resized)}

    def resized(self, captured, program, want) -> str:
        if want is None:
            return ""
        try:
            return "wrong" if same(zoo.tensors(captured.run(*program.resized)), want) else "works"
        except Exception:
            return "fails"

    # ---- tables 2 to 4 ------------------------------------------------------------------------------------------------

    def prepare(self, table: int, mode: str) -> dict:
        """Compiles and checks. mode: inference or training, and fp32 or bf16."""
        systems = {2: backends.OVERHEAD, 3: backends.SPEED}.get(table) or backends.ablation()[0]
        case = zoo.build(self.name, small=True)
        what, dtype = mode.split()
        if dtype == "bf16":
            narrow = lambda a: a.bfloat16() if a.is_floating_point() else a
            case = dataclasses.replace(case, fn=case.fn.bfloat16(), args=tuple(map(narrow, case.args)))
        if what == "training":
            case = suites.training(case)
        wide = suites.in_double(case)
        exact, eager = wide.step(wide.fn), [t.clone() for t in case.step(case.fn)]
        start = time.perf_counter()
        fn = systems[self.system](case)
        got = case.step(fn)
        seconds = time.perf_counter() - start
        self.run = lambda: case.step(fn)
        for _ in range(3):
            got = self.run()
        wrong = as_accurate(
            [t.to("cpu") for t in got], eager, exact, torch.bfloat16 if dtype == "bf16" else torch.float32
        )
        if wrong:
            raise ArithmeticError(wrong)
        return {"seconds": seconds}

    def time(self, seconds: float, clock: str) -> dict:
        return least(self.run, seconds, time.process_time if clock == "cpu" else time.perf_counter)
