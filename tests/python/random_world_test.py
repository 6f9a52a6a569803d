"""Random worlds that change between calls, and random programs of the language: a part of what `make fuzz` runs. BRAZE_RANDOM_FIRST and
BRAZE_RANDOM_COUNT choose the seeds."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "fuzz"))
import language  # noqa: E402
import world  # noqa: E402

world.STATES.pop("mkldnn", None)  # PyTorch's own test helpers, imported by other tests, freeze this flag

FIRST = int(os.environ.get("BRAZE_RANDOM_FIRST", "0"))
COUNT = int(os.environ.get("BRAZE_RANDOM_COUNT", "150"))
STEP = 50


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, STEP))
def test_random_worlds(first):
    counts = world.Counts()
    for seed in range(first, first + STEP):
        wrong = world.check(seed, counts)
        assert not wrong, wrong
    assert counts.compiled > STEP / 3 and counts.noticed > STEP / 3 and counts.changes > STEP * 5, (
        f"too little happened: {counts}"
    )


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, STEP))
def test_random_language(first):
    counts = language.Counts()
    for seed in range(first, first + STEP):
        wrong = language.check(seed, counts)
        assert not wrong, wrong
    assert counts.compiled > STEP / 2
