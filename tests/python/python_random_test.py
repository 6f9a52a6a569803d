"""Python's random numbers inside compiled code: drawn by the generator itself at each run, so that values and state are eager's."""

import random

import pytest
import torch
from dynamic_test import Counted, r
from harness import same

import braze

OWN = random.Random(7)


def floats(x):
    return x * random.random() + random.random(), random.random()


def uniform(x):
    return x + random.uniform(1, 2), OWN.uniform(0, 3) * x


def ints(x):
    a, b = random.randint(1, 10), random.randrange(5)
    return x + a + b, a, b


def unused(x):
    random.random()
    return x + 1


def without_a_graph(x):
    random.random()
    return 3


def break_between(x):
    x = x + random.random()
    braze.graph_break()
    return x * random.random()


def decided(x):
    return x + 1 if random.random() < 0.5 else x - 1


def seeded_inside(x):
    a = random.random()
    random.seed(3)
    return x * a + random.random()


def other_distributions(x):
    return (
        random.gauss(0, 1),
        random.sample(range(10), 3),
        x + random.expovariate(1.0),
        [random.choice([1, 2, 3]) for _ in range(3)],
    )


def check(fn, **options):
    c = Counted(fn, **options)
    for call in range(6):
        results, states = [], []
        x = r(4)
        for f in (fn, c):
            random.seed(call)
            OWN.seed(call)
            results.append(f(x))
            states.append((random.getstate(), OWN.getstate()))
        same(*results)
        assert states[0] == states[1]
    return c


@pytest.mark.parametrize("fn", [floats, uniform, ints, unused])
def test_one_graph(fn):
    c = check(fn, fullgraph=True)
    assert c.count == 1 and not c.breaks


@pytest.mark.parametrize(
    "fn", [floats, uniform, ints, unused, without_a_graph, break_between, decided, seeded_inside, other_distributions]
)
def test_with_breaks(fn):
    check(fn)


def test_a_generator_made_inside():
    def fn(x):
        g = random.Random(5)
        return x + g.random(), g.randint(0, 9)

    x = torch.ones(2)
    same(fn(x), braze.compile(fn)(x))
