"""Random programs of the language, compiled against plain: results, what they changed and logged, exceptions with their chains and lines.

    python tests/fuzz/language.py --first 0 --count 2000

A program that differs is made as small as dropping its statements makes it, and printed.
"""

import argparse
import copy
import functools
import linecache
import random
import sys
import time
import types
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from language_programs import Block, text, write  # noqa: E402
from running import Counter, outcome, search  # noqa: E402
from shrinking import shrink  # noqa: E402
from world_compare import twins  # noqa: E402

import braze  # noqa: E402


@braze.disable
def probe(log, value):
    log.append(("probe", str(value)))


def load(source, name):
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType("world")
    module.probe = probe
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def inputs(seed, rows):
    r = random.Random(seed)
    return [
        torch.arange(rows * 3.0).reshape(rows, 3) - r.randint(0, 4),
        r.randint(-1, 3),
        [r.randint(-2, 4) for _ in range(r.randint(0, 4))],
        {"a": r.randint(0, 3), 1: 2},
        [],
    ]


class Counts:
    programs = calls = raised = compiled = graphs = 0


def failure(blocks, seed, counts):
    source, name = text(blocks), "<language>"
    r = random.Random(seed)
    backend, dynamic = "braze" if r.random() < 0.15 else "eager", r.choice((None, None, True, False))
    counter = Counter()
    rows = r.choice(((2, 2, 2), (2, 3, 5)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, other = load(source, name), load(source, name)
        compiled = braze.compile(other.f, backend="braze" if backend == "braze" else counter, dynamic=dynamic)
        try:
            for call, n in zip((seed, seed, seed + 1), rows):
                a, b = inputs(call, n), inputs(call, n)
                want, got = outcome(plain.f, a, name), outcome(compiled, b, name)
                counts.calls += 1
                counts.raised += want[0] == "raised"
                if "recursion" in (want[0], got[0]):
                    return None
                where = f"call {call - seed}, {backend}, dynamic={dynamic}: "
                if want[0] != got[0]:
                    return f"{where}{got}, expected {want}"[:1500]
                state = lambda m: {
                    k: v
                    for k, v in vars(m).items()
                    if k not in ("__builtins__", "__warningregistry__") and not isinstance(v, types.ModuleType)
                }
                if wrong := twins(
                    {"log": a[4], "result": want[1], "arguments": a, "module": state(plain)},
                    {"log": b[4], "result": got[1], "arguments": b, "module": state(other)},
                ):
                    return where + wrong
        finally:
            braze.reset()
    counts.compiled += counter.graphs > 0 or backend == "braze"
    counts.graphs += counter.graphs
    return None


def smaller(blocks):
    """Each list of blocks with one part less."""
    for i in reversed(range(len(blocks))):
        yield blocks[:i] + blocks[i + 1 :]
    for i, b in enumerate(blocks):
        replace = lambda *new: blocks[:i] + list(new) + blocks[i + 1 :]
        if b.head.rstrip().endswith(":"):
            yield replace(*b.body)
            for j in reversed(range(len(b.tails))):
                if len(b.tails) > 1 or b.head != "try:":
                    yield replace(Block(b.head, b.body, b.tails[:j] + b.tails[j + 1 :]))
            for body in smaller(b.body):
                yield replace(Block(b.head, body, b.tails))
            for j, (head, body) in enumerate(b.tails):
                for less in smaller(body):
                    yield replace(Block(b.head, b.body, [*b.tails[:j], (head, less), *b.tails[j + 1 :]]))


def check(seed, counts=None):
    """None, or a text with what is wrong and the smallest program that shows it."""
    counts = Counts() if counts is None else counts
    blocks = write(seed)
    counts.programs += 1
    why = failure(blocks, seed, counts)
    if not why:
        return None
    small, reason = shrink(copy.deepcopy(blocks), why, smaller, lambda b: failure(b, seed, Counts()))
    source = text(small)
    return f"seed {seed}: {why[:300]}\nshrunk: {reason}\n{source[source.index('def f(x, n') :]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--stop-after", type=int, default=10, help="failures to show")
    options = parser.parse_args()
    counts, start = Counts(), time.time()
    one = functools.partial(check, counts=counts)
    failed, seed = search(one, options.first, options.count, options.stop_after, options.seconds)
    print(
        f"{failed} programs differ; seeds {options.first} to {seed}; {time.time() - start:.0f} s; {counts.programs} programs, {counts.calls} calls, {counts.raised} raised, {counts.compiled} compiled, {counts.graphs} graphs"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
