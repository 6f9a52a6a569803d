"""threading.local objects that were there before: the attributes of the thread that calls."""

import threading

import torch
from dynamic_test import Counted

import braze


def counting(local):
    def f(x):
        n = getattr(local, "n", 0)
        local.n = n + 1
        if hasattr(local, "gone"):
            del local.gone
        return x + n

    return f


def test_read_and_written():
    ours, theirs = threading.local(), threading.local()
    ours.gone = theirs.gone = 1
    fast, slow = Counted(counting(ours), fullgraph=True), counting(theirs)
    for _ in range(4):
        torch.testing.assert_close(fast(torch.ones(2)), slow(torch.ones(2)))
        assert vars(ours) == vars(theirs)
    assert not fast.breaks


def test_each_thread_has_its_own():
    local = threading.local()
    local.n = 5
    fast = braze.compile(counting(local), fullgraph=True)
    fast(torch.ones(2))
    seen = []

    def other():
        seen.extend([fast(torch.ones(2)), fast(torch.ones(2)), vars(local).copy()])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    torch.testing.assert_close(seen[:2], [torch.ones(2), torch.ones(2) + 1])
    assert seen[2] == {"n": 2} and vars(local) == {"n": 6}


def test_a_value_that_changes_between_calls():
    local = threading.local()

    def f(x):
        return x * local.scale

    fast = braze.compile(f, fullgraph=True)
    for scale in (2, 3, torch.ones(2), 2):
        local.scale = scale
        torch.testing.assert_close(fast(torch.ones(2)), f(torch.ones(2)))
    del local.scale
    try:
        fast(torch.ones(2))
    except AttributeError:
        pass
    else:
        raise AssertionError("the attribute is gone")
