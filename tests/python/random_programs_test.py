"""Random programs, compiled against plain: results, changed arguments, what was logged, exceptions with their chain and lines."""

import copy
import linecache
import os
import pathlib
import random
import sys
import types

import pytest
import torch
from harness import same
from random_programs import program

import braze

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "fuzz"))
from running import outcome  # noqa: E402

FIRST = int(os.environ.get("BRAZE_RANDOM_FIRST", "0"))
COUNT = int(os.environ.get("BRAZE_RANDOM_COUNT", "120"))


@braze.disable
def probe(log, value):
    log.append(("probe", str(value)))


def load(seed, sizes=False):
    text, name = program(seed, sizes), f"<random {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    module = types.ModuleType("random_program")
    module.probe = probe
    exec(compile(text, name, "exec"), module.__dict__)
    return module.f, text, name


def inputs(seed, rows=2):
    r = random.Random(seed)
    torch.manual_seed(seed)
    return [
        torch.randn(rows, 3),
        r.randint(-1, 3),
        [r.randint(-2, 4) for _ in range(r.randint(0, 4))],
        {"a": r.randint(0, 3), 1: 2},
        [],
    ]


def check(seed, backend, rows=(2, 2, 2), **kw):
    f, text, name = load(seed, len(set(rows)) > 1)
    compiled = braze.compile(f, backend=backend, **kw)
    for call, n in zip((seed, seed, *range(seed + 1, seed + len(rows) - 1)), rows):
        arguments = inputs(call, n)
        mine = copy.deepcopy(arguments)
        want, got = outcome(f, arguments, name), outcome(compiled, mine, name)
        try:
            assert want[0] == got[0], f"{got}, expected {want}"
            same(want[1], got[1], "result")
            same(arguments, mine, "arguments")
        except AssertionError as e:
            raise AssertionError(f"seed {seed}, call {call}: {e}\n{text[text.index('def f(') :]}") from None


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT, 20))
def test_random_programs(seed):
    for s in range(seed, seed + 20):
        check(s, "eager")
        braze.reset()


@pytest.mark.parametrize("seed", range(0, 30, 10))
def test_random_programs_with_kernels(seed):
    for s in range(seed, seed + 10):
        check(s, "braze")
        braze.reset()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT // 2, 20))
def test_random_programs_on_varying_sizes(seed, dynamic):
    for s in range(seed, seed + 20):
        check(s, "braze" if s % 4 == 0 else "eager", rows=(4, 7, 2, 5, 4), dynamic=dynamic)
        braze.reset()
