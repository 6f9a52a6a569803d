"""Random worlds against eager PyTorch: whatever a compiled function read is changed between its calls.

    python tests/fuzz/world.py --first 0 --count 2000

makes each world twice from one source, calls the function plain in one and compiled in the other, makes the same change in both, and
calls again. All that hangs off the two worlds has to be alike after each call. A program that differs is made as small as dropping its
parts makes it, and printed as a script. `--seed N` runs one.
"""

import argparse
import contextlib
import copy
import dataclasses
import functools
import gc
import linecache
import math
import operator
import os
import string
import sys
import time
import traceback
import types
import warnings
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from running import Counter, search  # noqa: E402
from shrinking import shrink  # noqa: E402
from world_compare import plain_text, twins  # noqa: E402
from world_process import STATES  # noqa: E402
from world_programs import write  # noqa: E402
from world_shared import Shared  # noqa: E402

import braze  # noqa: E402

MODULES = dict(
    torch=torch,
    np=np,
    os=os,
    sys=sys,
    math=math,
    operator=operator,
    string=string,
    copy=copy,
    builtins=__import__("builtins"),
)


NOW_BUILTIN = vars(MODULES["builtins"])
BUILTINS = dict(NOW_BUILTIN)


class Doubles(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, f, types, args=(), kwargs=None):
        out = f(*args, **(kwargs or {}))
        return out + out if f in (torch.sin, torch.Tensor.sin) else out


class World:
    """One of the two."""

    def __init__(self, program, name):
        self.module = types.ModuleType("world")
        self.hits = 0
        self.names = self.module.__dict__
        self.names.update(MODULES, at=self.at)
        text = program.source()
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compiled_text(text, name), self.names)
        del self.names["at"]

    def at(self, address, make):
        """What make gives, at the address if it can be had."""
        others = []
        for _ in range(40):
            o = make()
            if id(o) == address:
                self.hits += 1
                return o
            others.append(o)
        return o

    def do(self, text):
        self.names["at"] = self.at
        try:
            exec(compiled_text(text, "change"), self.names)
        except BUILTINS["Exception"] as e:
            return BUILTINS["type"](e).__name__
        finally:
            if "exec" not in NOW_BUILTIN:  # a path led to len.__self__.__dict__.clear()
                NOW_BUILTIN.update(BUILTINS)
            for name in ("at", "again", "address"):
                self.names.pop(name, None)

    def call(self, f, arguments):
        try:
            values = [eval(compiled_text(a, "argument", "eval"), self.names) for a in arguments]
        except Exception as e:
            return "no arguments", type(e).__name__
        try:
            return "returned", (f(*values), values)
        except RecursionError:
            return "recursion", None
        except Exception as e:
            return "raised", (type(e).__name__, plain_text(str(e)), values)


@functools.lru_cache(4096)
def compiled_text(text, name, mode="exec"):
    return compile(text, name, mode)


class Process:
    """State of the process, taken back at the end."""

    def __init__(self):
        self.scope, self.on = contextlib.ExitStack(), {}
        self.names = dict(MODULES, kept={}, kept_pi=math.pi, scope=self.scope, Doubles=Doubles)

    def flip(self, name):
        do, undo = STATES[name]
        if undo is None and name in self.on:
            return
        if self.on.pop(name, None):
            exec(undo, self.names)
        else:
            exec(do, self.names)
            self.on[name] = True

    def __enter__(self):
        return self

    def __exit__(self, *e):
        self.scope.close()
        for name in list(self.on)[::-1]:
            if STATES[name][1]:
                exec(STATES[name][1], self.names)
        torch.set_grad_enabled(True)
        SHARED.put_back()


SHARED = Shared()


@dataclasses.dataclass
class Counts:
    programs: int = 0
    invalid: int = 0
    compiled: int = 0
    changes: int = 0
    calls: int = 0
    raised: int = 0
    noticed: int = 0  # changes after which something was compiled anew
    same_address: int = 0
    graphs: int = 0

    def add(self, other):
        for f in dataclasses.fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))


def failure(program, counts):
    """What is wrong with the program compiled, or None."""
    with Process() as process, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run(program, counts, process)
        finally:
            braze.reset()


def run(program, counts, process):
    try:
        plain, other = World(program, "<world>"), World(program, "<world>")
    except Exception:
        counts.invalid += 1
        return None
    counts.programs += 1
    counter = Counter()
    f = eval(program.target, plain.names)
    g = braze.compile(
        eval(program.target, other.names),
        backend="braze" if program.backend == "braze" else counter,
        dynamic=program.dynamic,
    )
    for i, step in enumerate([[], [], *program.steps]):
        for text in step:
            if text.startswith("!"):
                process.flip(text[1:])
                continue
            a, b = plain.do(text), other.do(text)
            if a != b and text.removeprefix("del ").startswith("type("):
                return None  # of a class that both share: what the one did to it the other finds
            if a != b:
                return f"change {i - 1}: {b}, expected {a}"
        counts.changes += i > 1
        before = counter.graphs
        want, got = plain.call(f, program.arguments), other.call(g, program.arguments)
        counts.calls += 1
        counts.raised += want[0] == "raised"
        counts.noticed += i > 1 and counter.graphs > before
        if "recursion" in (want[0], got[0]):
            return None
        if want[0] != got[0]:
            return f"after change {i - 1}: {got[0]} {got[1] if got[0] == 'raised' else ''}, expected {want[0]} {want[1] if want[0] == 'raised' else ''}"
        results = {"result": want[1], **own(plain)}, {"result": got[1], **own(other)}
        if twins(*results):
            gc.collect()  # what only cycles hold ends in the two worlds at other times
        if wrong := twins(*results):
            return f"after change {i - 1}: {wrong}"
        results = None
        want = got = None
    counts.compiled += counter.graphs > 0
    counts.graphs += counter.graphs
    counts.same_address += other.hits
    return None


def own(world):
    return {
        k: v
        for k, v in world.names.items()
        if k not in ("__builtins__", "__warningregistry__")
        and not isinstance(v, types.ModuleType)
        or isinstance(v, types.ModuleType)
        and k[0] == "g"
        and k[1:].isdigit()
    }


# ---- made small ----


def parts(program):
    """Each smaller program, one part less."""
    copied = lambda: copy.deepcopy(program)
    for name in ("steps", "body", "setup", "tail"):
        for i in reversed(range(len(getattr(program, name)))):
            p = copied()
            del getattr(p, name)[i]
            yield p
    for i in reversed(range(len(program.steps))):
        for j in reversed(range(len(program.steps[i]))):
            if len(program.steps[i]) > 1:
                p = copied()
                del p.steps[i][j]
                yield p
        if i:
            p = copied()
            p.steps[i - 1 : i + 1] = [p.steps[i - 1] + p.steps[i]]
            yield p
    for i, block in enumerate(program.body):
        if block.startswith("try:"):
            p = copied()
            lines = block.splitlines()
            p.body[i] = "\n".join(line[4:] for line in lines[1 : lines.index("except Exception as error:")])
            yield p
    for i, block in enumerate(program.setup):
        lines = block.splitlines()
        for j in reversed(range(2, len(lines))):
            p = copied()
            p.setup[i] = "\n".join(lines[:j] + lines[j + 1 :])
            yield p


def script(program):
    """The program as a file that runs by itself beside this folder."""
    steps = "".join(f"    {step!r},\n" for step in program.steps)
    fields = f"arguments={program.arguments!r}, target={program.target!r}, backend={program.backend!r}, dynamic={program.dynamic!r}"
    return f"SOURCE = '''\n{program.source()}'''\nSTEPS = [\n{steps}]\n# {fields}\n"


def check(seed, counts=None):
    """None, or a text with what is wrong and the smallest program that shows it."""
    counts = Counts() if counts is None else counts
    program = write(seed)
    why = failure(program, counts)
    if not why:
        return None
    small, reason = shrink(program, why, parts, lambda p: failure(p, Counts()))
    return f"seed {seed}: {why}\nshrunk: {reason}\n{script(small)}"


def trace_seed(seed):
    if os.environ.get("WORLD_TRACE"):
        Path(os.environ["WORLD_TRACE"]).write_text(str(seed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--stop-after", type=int, default=10, help="failures to show")
    options = parser.parse_args()
    if options.seed is not None:
        options.first, options.count = options.seed, 1
    counts, start = Counts(), time.time()

    def one(seed):
        trace_seed(seed)
        try:
            return check(seed, counts)
        except Exception:
            return f"seed {seed}: no program: {traceback.format_exc()}"

    failed, seed = search(one, options.first, options.count, options.stop_after, options.seconds)
    seconds = time.time() - start
    print(
        f"{failed} programs differ; seeds {options.first} to {seed}; {seconds:.0f} s, {counts.changes / seconds * 60:.0f} changes a minute; {counts}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
