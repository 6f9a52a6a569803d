"""Random modules trained by random optimizers, compiled in several ways, against eager PyTorch: results, losses, parameters, buffers,
gradients, the optimizer's state, attributes, exceptions, step by step.

    python tests/fuzz/training.py --first 0 --count 5000

prints each program whose behaviour differs, made as small as dropping layers, events and lines of the step makes it, and its seed.
"""

import copy
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from running import compare  # noqa: E402
from tensors import distance  # noqa: E402
from training_programs import make_input, write  # noqa: E402

import braze  # noqa: E402

PLAIN = (int, float, bool, str, type(None))


class Run:
    """A module and what trains it, compiled or not."""

    def __init__(self, program, compiled, moved=0.0):
        """`moved`: by how much parameters are made to differ, relative to their size."""
        self.program = program
        scope = {}
        exec(compile(program.source(), "program", "exec"), scope)
        torch.manual_seed(0)
        self.scope = scope
        model = scope["M"]().to(program.dtype)
        with torch.no_grad():
            copy.deepcopy(model)(make_input(program, 0))  # what fails in eager is no program
        if any(isinstance(m, nn.modules.lazy.LazyModuleMixin) for m in model.modules()):
            model(make_input(program, 0))
        with torch.no_grad():
            for p in model.parameters() if moved else ():
                p.mul_(1 + moved * torch.randn_like(p))
        self.optimizer, self.scheduler, self.average = scope["make"](model)
        self.model, self.call, self.step = model, model, scope["step"]
        if compiled:
            wrap = lambda f: braze.compile(f, dynamic=program.dynamic)
            if program.compiled == "model":
                self.call = wrap(model)
            elif program.compiled == "in place":
                braze.compile_module_(model, dynamic=program.dynamic)
            elif program.compiled == "step":
                self.step = wrap(self.step)
            elif program.compiled == "loss":
                scope["loss_of"] = wrap(scope["loss_of"])
                self.call = wrap(model)
            else:
                self.call = wrap(model)
                self.optimizer.step = wrap(self.optimizer.step)

    def turn(self, n, event):
        """One step and an event: what a caller sees of them."""
        seen, raised = [], []
        x = make_input(self.program, n)
        try:
            seen += self.step(self.call, self.optimizer, self.scheduler, self.average, x)
        except Exception as e:
            note(e, raised)
        scope = self.scope | {
            "model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "average": self.average, "x": x, "run": self.call, "seen": seen,
        }  # fmt: skip
        try:
            exec(event, scope)
        except Exception as e:
            note(e, raised)
        self.average = scope["average"]
        torch.set_grad_enabled(True)
        return raised, [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in seen], self.state()

    def state(self):
        out = {}
        for who, module in (("model", self.model), ("average", self.average)):
            for n, p in module.named_parameters():
                out[f"{who}.{n}"] = p.detach().clone()
                out[f"{who}.{n}.requires_grad"] = p.requires_grad
                out[f"{who}.{n}.grad"] = None if p.grad is None else p.grad.detach().clone()
            for n, b in module.named_buffers():
                out[f"{who}.{n}"] = b.detach().clone()
            for n, m in module.named_modules():
                for k, v in vars(m).items():
                    if not k.startswith("_"):
                        out[f"{who}.{n}.{k}"] = plain(v)
        for i, (p, state) in enumerate(self.optimizer.state.items()):
            for k, v in state.items():
                out[f"state.{i}.{k}"] = plain(v)
        for i, group in enumerate(self.optimizer.param_groups):
            for k, v in group.items():
                if k != "params":
                    out[f"group.{i}.{k}"] = plain(v)
        return out


def note(e, raised):
    if "braze" in str(e):
        raise e
    raised.append(type(e).__name__)


def plain(v):
    if isinstance(v, torch.Tensor):
        return v.detach().clone()
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items() if isinstance(k, PLAIN)}
    return v if isinstance(v, PLAIN) else type(v).__name__


def difference(got, want, tolerance):
    if isinstance(want, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            return f"{got}, expected a tensor"
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{tuple(got.shape)} {got.dtype}, expected {tuple(want.shape)} {want.dtype}"
        if not want.numel():
            return None
        scale = want.double().abs().nan_to_num(0, 0, 0).amax().item()
        error = distance(got, want)
        return f"off by {error:g}, values up to {scale:g}" if error > tolerance * (1 + scale) else None
    if type(got) is not type(want):
        return f"{got!r}, expected {want!r}"
    if isinstance(want, list) and len(got) == len(want):
        return next((w for a, b in zip(got, want) if (w := difference(a, b, tolerance))), None)
    if isinstance(want, dict) and got.keys() == want.keys():
        return next((f"[{k!r}] {w}" for k in want if (w := difference(got[k], want[k], tolerance))), None)
    if isinstance(want, float):
        return (
            None
            if got == want or abs(got - want) <= tolerance * (1 + abs(want)) or got != got and want != want
            else f"{got}, expected {want}"
        )
    return None if got == want else f"{got!r}, expected {want!r}"


def failure(program):
    try:
        try:
            theirs, near = Run(program, False), Run(program, False, 1e-14 if program.dtype == torch.float64 else 1e-6)
        except Exception:
            return None
        mine = Run(program, True)
        for n, event in enumerate(["", "", *program.events, ""]):
            turns = []
            for run in (theirs, near):
                torch.manual_seed(n)
                turns.append(run.turn(n, event))
            (raised, want, state), (_, about, about_state) = turns
            torch.manual_seed(n)
            try:
                failed, got, mine_state = mine.turn(n, event)
            except Exception as e:
                return f"turn {n}: {type(e).__name__}: {e}"
            where = f"turn {n}, after {event!r}: "
            if is_noise(state, program) or is_noise(mine_state, program):
                return None
            if failed != raised:
                return f"{where}raised {failed}, expected {raised}"
            if raised:
                return None  # how far each came is not compared
            if difference(about, want, 1e-3 * bound(program)) or difference(about_state, state, 1e-3 * bound(program)):
                return None  # rounding is seen: a gradient of 0 by an optimizer that divides by its size
            if wrong := difference(got, want, bound(program)):
                return f"{where}results {wrong}"
            if mine_state.keys() != state.keys():
                return f"{where}{sorted(mine_state.keys() ^ state.keys())} on one side"
            for k in state:
                if wrong := difference(mine_state[k], state[k], bound(program)):
                    return f"{where}{k} {wrong}"
            if any(isinstance(v, torch.Tensor) and not v.isfinite().all() for v in state.values()):
                return None
    finally:
        torch.set_grad_enabled(True)
        braze.reset()
    return None


def is_noise(state, program):
    """Whether a gradient is what rounding left of 0, which an optimizer may make as large as any."""
    tiny = 1e-11 if program.dtype == torch.float64 else 1e-4
    for k, v in state.items():
        if k.endswith(".grad") and v is not None and ((v != 0) & (v.abs() < tiny)).any():
            return True
    return False


def bound(program):
    if program.dtype != torch.float64:
        return 1e-2
    # torch.optim itself computes corrections of bias in float32 where it is compiled
    return 1e-4 if "Ada" in program.optimizer and program.compiled in ("step", "parts") else 1e-6


if __name__ == "__main__":
    sys.exit(compare(__doc__, write, failure, 30))
