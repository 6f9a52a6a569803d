"""What the data says that cannot be done leaves inputs as eager leaves them, though the compiled code writes to their own memory."""

import copy

import pytest
import torch
from harness import outcome, same

import braze


def table():
    return torch.arange(12.0).view(4, 3)


def at(*indices):
    return torch.tensor(indices)


def assign(a, i):
    a[i] = 0.0


def assign_pairs(a, i, j):
    a[i, j] = 5.0


def scatter(a, i):
    a.scatter_(0, i.view(-1, 1).expand(-1, 3), 7.0)
    return a + 1


def fill(a, i):
    a.index_fill_(0, i, 9.0)


def copy_rows(a, i, rows):
    a.index_copy_(0, i, rows)


def copy_looked_up(a, rows, i, j):
    a[j] = rows[i]


def then_look_up(a, rows, i, j):
    a[j] = 1.0
    return rows[i], a.sum()


def look_up_first(a, rows, i, j):
    found = rows[i]
    a[j] = 1.0
    return a.sum(), found


def then_divide(a, i, j):
    a[j] = 1.0
    return i // j, a * 2


def cache(keys, place, new):
    keys[:, place] = new
    return (keys * 2).sum()


ROWS = torch.arange(12.0).view(4, 3) + 50
CASES = [
    (assign, [(table(), at(1, 2)), (table(), at(1, 9)), (table(), at(9, 1)), (table(), at(-5, 1))]),
    (assign_pairs, [(table(), at(1, 2), at(0, 1)), (table(), at(1, 2), at(0, 7)), (table(), at(1, 8), at(0, 1))]),
    (scatter, [(table(), at(1, 2)), (table(), at(1, 9)), (table(), at(2, -1))]),
    (fill, [(table(), at(1, 2)), (table(), at(1, 9))]),
    (copy_rows, [(table(), at(1, 2), ROWS[:2]), (table(), at(1, 9), ROWS[:2])]),
    (
        copy_looked_up,
        [
            (table(), ROWS, at(1, 2), at(0, 3)),
            (table(), ROWS, at(1, 8), at(0, 3)),
            (table(), ROWS, at(1, 2), at(1, -5)),
        ],
    ),
    (
        then_look_up,
        [
            (table(), ROWS, at(1, 2), at(0, 3)),
            (table(), ROWS, at(1, 8), at(0, 3)),
            (table(), ROWS, at(1, 2), at(1, -5)),
        ],
    ),
    (
        look_up_first,
        [
            (table(), ROWS, at(1, 2), at(0, 3)),
            (table(), ROWS, at(1, 8), at(0, 3)),
            (table(), ROWS, at(1, 2), at(1, -5)),
        ],
    ),
    (then_divide, [(table(), at(1, 2), at(2, 1)), (table(), at(1, 2), at(2, 0))]),
    (
        cache,
        [(torch.zeros(2, 5, 3), at(1, 2), torch.ones(2, 2, 3)), (torch.zeros(2, 5, 3), at(1, 7), torch.ones(2, 2, 3))],
    ),
]


@pytest.mark.parametrize("f, calls", CASES, ids=[f.__name__ for f, _ in CASES])
def test_inputs_after_a_fault(f, calls):
    compiled = braze.compile(f)
    for args in calls + calls[:1]:
        ours, eagers = copy.deepcopy(args), copy.deepcopy(args)
        (how, want), (how_compiled, got) = outcome(f, eagers, {}), outcome(compiled, ours, {})
        assert how == how_compiled
        if how == "raised":
            assert want[0] is got[0]
        else:
            same(want, got)
        same(eagers, ours)
