"""Objects that are fixed and what hangs off them: each change is seen (capture/guards/watch_table.h)."""

import pytest
import torch
from harness import agrees

X = torch.arange(12.0).reshape(3, 4)


class Held:
    """Reached through a global, so that its parts are watched."""

    items, table, pair, members, span = [1, 2], {"a": 1, "b": 2}, (1, 2), {1, 2}, range(3)
    tensor = torch.ones(4)
    nested = {"l": [10, 20]}


@pytest.fixture
def held():
    saved = dict(items=list(Held.items), table=dict(Held.table), members=set(Held.members))
    yield Held
    Held.items[:] = saved["items"]
    Held.table.clear()
    Held.table.update(saved["table"])
    Held.members.clear()
    Held.members.update(saved["members"])
    Held.span, Held.pair, Held.tensor, Held.nested = range(3), (1, 2), torch.ones(4), {"l": [10, 20]}


def test_watched_list(held):
    now = agrees(lambda a: a * Held.items[0] + len(Held.items), X)
    held.items[0] = 5
    assert now() == 1
    held.items.append(3)
    assert now() == 1
    held.items[:] = [5, 2, 3]
    assert now() == 0
    held.items.extend(range(1000))
    assert now() == 1
    del held.items[:]
    now()


def test_watched_list_pop_leaves_a_stale_slot(held):
    f = lambda a: a * Held.items[-1] if Held.items else a
    now = agrees(f, X)
    held.items.pop()
    assert now() == 1
    held.items.pop()
    now()


def test_watched_dict(held):
    now = agrees(lambda a: a * Held.table["a"] + Held.table.get("z", 0) + ("b" in Held.table), X)
    held.table["unread"] = 1
    assert now() == 0
    held.table["z"] = 4
    assert now() == 1
    del held.table["b"]
    assert now() == 1
    held.table["a"] = 1
    assert now() == 0


def test_watched_dict_order_and_values(held):
    f = lambda a: [a * v for v in Held.table.values()] + [len(k) for k in Held.table]
    now = agrees(f, X)
    v = held.table.pop("a")
    held.table["a"] = v
    assert now() == 1
    held.table["a"] = v
    assert now() == 0


def test_watched_set_range_tuple(held):
    f = lambda a: a * sum(n for n in Held.span) + Held.pair[1] + (2 in Held.members) + len(Held.members)
    now = agrees(f, X)
    held.members.discard(2)
    now()
    held.members.add(7)
    now()
    held.span = range(1, 5)
    now()
    held.pair = (1, 9)
    now()


def test_watched_tensor(held):
    now = agrees(lambda a: a + Held.tensor, X)
    held.tensor.add_(1)
    assert now() == 0
    held.tensor = torch.full((4,), 5.0)
    now()
    held.tensor = torch.ones(3, 1)
    assert now() == 1


def test_replaced_container_with_equal_content(held):
    now = agrees(lambda a: a * Held.nested["l"][1], X)
    held.nested = {"l": [10, 20]}
    assert now() == 0
    held.nested["l"] = [10, 30]
    assert now() == 1


def test_replaced_list_whose_memory_is_gone(held):
    """A list of this size has pages of its own, which go back to the system with it: a check that read them would crash."""
    held.items = [3.0] * (1 << 23)
    now = agrees(lambda a: a * Held.items[5], X)
    assert now() == 0
    fewer = [4.0] * 8
    held.items = fewer  # frees the large one; the next list made would take its place
    assert now() == 1
    assert now() == 0
