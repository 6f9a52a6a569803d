"""Operators that write to their arguments, in compiled functions: on the memory that they are given, where nobody sees the difference."""

import pytest
import torch

import braze

ADDRESSES = []  # of what the operators below were given


@torch.library.custom_op("braze_in_place::add_one_", mutates_args={"x"})
def add_one_(x: torch.Tensor) -> None:
    ADDRESSES.append(x.data_ptr())
    x.add_(1)


@torch.library.custom_op("braze_in_place::sum_to", mutates_args={"out"})
def sum_to(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    ADDRESSES.append(out.data_ptr())
    torch.add(a, b, out=out)


@torch.library.custom_op("braze_in_place::both_", mutates_args={"x", "y"})
def both_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    ADDRESSES.extend([x.data_ptr(), y.data_ptr()])
    x.add_(1)
    y.mul_(2)
    return x + y


@both_.register_fake
def _(x, y):
    return torch.empty_like(x)


@torch.library.custom_op("braze_in_place::fail", mutates_args=())
def fail(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("as it should")


@fail.register_fake
def _(x):
    return torch.empty_like(x)


def run(f, *args):
    """The compiled function's result on the arguments, in one graph, as eager's; and what the operators were given."""
    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
        expected = f(*theirs)
        ADDRESSES.clear()
        got = compiled(*mine)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(mine, theirs)
    return got, mine, list(ADDRESSES)


def test_an_input_is_written_where_it_is():
    _, (x,), given = run(lambda x: add_one_(x), torch.randn(50))
    assert given == [x.data_ptr()]


def test_an_input_that_is_read_before():
    def f(x):
        before = x.sum()
        add_one_(x)
        return before, x * 2

    _, (x,), given = run(f, torch.randn(50))
    assert given == [x.data_ptr()]


def test_an_input_that_is_handed_back():
    def f(x, w):
        add_one_(x)
        return x, x @ w

    (same, _), (x, w), given = run(f, torch.randn(5, 5), torch.randn(5, 5))
    assert given == [x.data_ptr()] and same.data_ptr() == x.data_ptr()


def test_two_inputs_and_a_result():
    _, (x, y), given = run(lambda x, y: both_(x, y) + y, torch.randn(50), torch.randn(50))
    assert given == [x.data_ptr(), y.data_ptr()]


def test_twice():
    def f(x):
        add_one_(x)
        y = x * 3
        add_one_(x)
        return y

    _, (x,), given = run(f, torch.randn(50))
    assert len(given) == 2


def test_fresh_memory_is_the_results():
    def f(a, b):
        out = torch.empty_like(a)
        sum_to(a, b, out)
        return out

    out, (a, b), given = run(f, torch.randn(50), torch.randn(50))
    assert given == [out.data_ptr()]
    assert braze.explain(f, a, b).kernel_count == 0  # nothing fills it before


def test_two_of_fresh_memory():
    def f(a, b):
        first, second = torch.empty_like(a), torch.empty_like(a)
        sum_to(a, b, first)
        sum_to(b, first, second)
        return first, second

    out, _, given = run(f, torch.randn(50), torch.randn(50))
    assert given == [t.data_ptr() for t in out]


def test_what_was_computed():
    def f(x):
        y = x * 2
        add_one_(y)
        return y

    y, _, given = run(f, torch.randn(50))
    assert given == [y.data_ptr()]


def test_what_an_operator_made():
    def f(x, w):
        y = x @ w
        add_one_(y)
        return y + 1

    run(f, torch.randn(6, 6), torch.randn(6, 6))


def test_what_is_read_later_is_copied():
    def f(x):
        y = x * 2
        before = y[3:]
        z = y.clone()
        add_one_(z)
        return z, y, before * 1

    run(f, torch.randn(50))


def test_an_input_whose_old_value_is_read_later():
    def f(x):
        old = x.clone()
        add_one_(x)
        return torch.cumsum(old, 0), x * 1

    run(f, torch.randn(50))


def test_a_part_of_an_input():
    def f(x):
        add_one_(x[1:, 2:4])
        return x.sum()

    run(f, torch.randn(5, 6))


def test_a_value_that_both_write():
    def f(x):
        y = x * 2
        both_(y, y.clone())
        return y

    run(f, torch.randn(50))


def test_in_training():
    def f(x, w):
        y = x * w
        out = torch.empty_like(x)
        sum_to(x, x, out)
        return (y * out).sum()

    compiled = braze.compile(f, fullgraph=True)
    mine, theirs = [[torch.arange(5.0), torch.ones(5, requires_grad=True)] for _ in range(2)]
    compiled(*mine).backward()
    f(*theirs).backward()
    torch.testing.assert_close(mine[1].grad, theirs[1].grad)


def test_open_sizes():
    def f(a, b):
        out = torch.empty_like(a)
        sum_to(a, b, out)
        add_one_(a)
        return out * 2

    compiled = braze.compile(f, fullgraph=True)
    for n in (5, 8, 13, 21):
        mine, theirs = [[torch.arange(n) * 1.0, torch.ones(n)] for _ in range(2)]
        torch.testing.assert_close(compiled(*mine), f(*theirs))
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("before", [False, True])
def test_a_later_failure(before):
    """The input was changed once, and what was raised is the operator's own."""

    def f(x):
        if before:
            x.mul_(2)
        add_one_(x)
        return fail(x)

    for g in (f, braze.compile(f)):
        x = torch.zeros(5)
        for expected in (1.0, 3.0 if before else 2.0):
            with pytest.raises(ValueError, match="as it should"):
                g(x)
            torch.testing.assert_close(x, torch.full((5,), expected))
