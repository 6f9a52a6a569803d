"""Variables that a function has in one call and not in another, in code that is resumed behind a break."""

import pytest
import torch

import braze


def in_locals(x, n):
    if n > 0:
        first = torch.ones(2)
    braze.graph_break()
    y = x * 2
    return y, sorted(locals())


def in_locals_of_a_loop(x, n):
    seen = []
    for i in range(n):
        print(end="")
        seen.append(sorted(locals()))
        last = i * 2  # noqa: F841
        x = x + len(seen)
    braze.graph_break()
    return x, seen, sorted(locals())


def read(x, n):
    if n > 0:
        first = x + 1
    braze.graph_break()
    y = x * 2
    try:
        return y, first
    except UnboundLocalError as e:
        return y, str(e)


def handed_on(x, n):
    if n > 0:
        first = [n]
    braze.graph_break()
    y = x * 2
    try:
        both = (y, first)
    except UnboundLocalError:
        both = (y, None)
    return both


def deleted(x, n):
    first = x + n
    if n > 1:
        del first
    braze.graph_break()
    y = x * 2
    return y, "first" in locals()


@pytest.mark.parametrize("f", [in_locals, in_locals_of_a_loop, read, handed_on, deleted], ids=lambda f: f.__name__)
def test_bound_in_some_calls(f):
    fast = braze.compile(f)
    for n in (2, 0, 1, 0, 3, 2):
        x = torch.ones(2)
        want, got = f(x, n), fast(x, n)
        assert torch.equal(got[0], want[0])
        assert len(got) == len(want)
        for a, b in zip(got[1:], want[1:]):
            assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b
