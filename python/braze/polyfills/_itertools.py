"""itertools."""

import itertools
import operator
import sys

_missing = object()


def itertool(name, *fields):
    """In place of an iterator of itertools that goes on from what its fields hold; those that are empty at first are
    left out."""
    raise NotImplementedError(name)


def made_of(cls, args, generator):
    """In the capture an iterator that goes on as the generator does, and is what `cls(*args)` makes until it has given
    an item. `args` hold what was read when it was made."""
    return cls(*args)


def chain(*iterables):
    return itertool("chain", iter(iterables))


def chain_from_iterable(iterable, /):
    return itertool("chain", iter(iterable))


def repeat(object, times=_missing):
    return itertool("repeat", object, -1 if times is _missing else max(operator.index(times), 0))


def count(start=0, step=1):
    for n in (start, step):
        if not (hasattr(n, "__index__") or hasattr(n, "__float__") or hasattr(n, "__complex__")):
            raise TypeError("a number is required")
    if type(start) is not int and isinstance(start, int) and isinstance(step, int):
        # Of integers one apart that fit a machine's word the first, too, is given as an int: count(True).
        first = int.__add__(start, 0)
        if int.__add__(step, 0) == 1 and -sys.maxsize - 1 <= first <= sys.maxsize:
            return itertool("count", first, 1)
    return itertool("count", start, step)


def cycle(iterable, /):
    return itertool("cycle", iter(iterable), [], 0, 0)


def _bound(value, message):
    if value is None:
        return None
    try:
        value = operator.index(value)
    except TypeError:
        raise ValueError(message) from None
    if value < 0:
        raise ValueError(message)
    return value


def islice(iterable, first, /, *rest):
    if len(rest) > 2:
        raise TypeError(f"islice expected at most 4 arguments, got {2 + len(rest)}")
    if rest:
        start, stop = first, rest[0]
    else:
        start, stop = None, first
    step = rest[1] if len(rest) == 2 else None
    if rest:
        text = "Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize."
    else:
        text = "Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize."
    start, stop = _bound(start, text) or 0, _bound(stop, text)
    text = "Step for islice() must be a positive integer or None."
    step = 1 if step is None else _bound(step, text)
    if step < 1:
        raise ValueError(text)
    return itertool("islice", iter(iterable), start, -1 if stop is None else stop, step, 0)


def product(*iterables, repeat=1):
    repeat = operator.index(repeat)
    if repeat < 0:
        raise ValueError("repeat argument cannot be negative")
    pools = [tuple(p) for p in iterables] * repeat
    return made_of(itertools.product, tuple(pools), _product(pools))


def _product(pools):
    n = len(pools)
    for pool in pools:
        if not pool:
            return
    at = [0] * n
    while True:
        yield tuple([pools[i][at[i]] for i in range(n)])
        i = n - 1
        while i >= 0 and at[i] == len(pools[i]) - 1:
            at[i] = 0
            i -= 1
        if i < 0:
            return
        at[i] += 1


def accumulate(iterable, func=None, *, initial=None):
    return itertool("accumulate", iter(iterable), func, initial)


def zip_longest(*iterables, fillvalue=None):
    return itertool("zip_longest", len(iterables), fillvalue, *[iter(i) for i in iterables])


def pairwise(iterable, /):
    return itertool("pairwise", iter(iterable))


def starmap(function, iterable, /):
    return itertool("starmap", function, iter(iterable))


def takewhile(predicate, iterable, /):
    return itertool("takewhile", predicate, iter(iterable), 0)


def dropwhile(predicate, iterable, /):
    return itertool("dropwhile", predicate, iter(iterable), 0)


def filterfalse(function, iterable, /):
    return itertool("filterfalse", function, iter(iterable))


def compress(data, selectors):
    return itertool("compress", iter(data), iter(selectors))


def _length(r):
    r = operator.index(r)
    if r < 0:
        raise ValueError("r must be non-negative")
    return r


def combinations(iterable, r):
    pool, r = tuple(iterable), _length(r)
    return made_of(itertools.combinations, (pool, r), _combinations(pool, r))


def _combinations(pool, r):
    n = len(pool)
    if r > n:
        return
    at = list(range(r))
    yield tuple([pool[i] for i in at])
    while True:
        i = r - 1
        while i >= 0 and at[i] == i + n - r:
            i -= 1
        if i < 0:
            return
        at[i] += 1
        for j in range(i + 1, r):
            at[j] = at[j - 1] + 1
        yield tuple([pool[i] for i in at])


def combinations_with_replacement(iterable, r):
    pool, r = tuple(iterable), _length(r)
    return made_of(itertools.combinations_with_replacement, (pool, r), _combinations_with_replacement(pool, r))


def _combinations_with_replacement(pool, r):
    n = len(pool)
    if not n and r:
        return
    at = [0] * r
    yield tuple([pool[i] for i in at])
    while True:
        i = r - 1
        while i >= 0 and at[i] == n - 1:
            i -= 1
        if i < 0:
            return
        at[i:] = [at[i] + 1] * (r - i)
        yield tuple([pool[i] for i in at])


def permutations(iterable, r=None):
    pool = tuple(iterable)
    if r is not None and not isinstance(r, int):
        raise TypeError("Expected int as r")
    r = len(pool) if r is None else _length(r)
    return made_of(itertools.permutations, (pool, r), _permutations(pool, r))


def _permutations(pool, r):
    n = len(pool)
    if r > n:
        return
    at = list(range(n))
    left = list(range(n, n - r, -1))
    yield tuple([pool[i] for i in at[:r]])
    while True:
        i = r - 1
        while i >= 0:
            left[i] -= 1
            if left[i]:
                break
            at[i:] = at[i + 1 :] + at[i : i + 1]
            left[i] = n - i
            i -= 1
        if i < 0:
            return
        j = n - left[i]
        at[i], at[j] = at[j], at[i]
        yield tuple([pool[i] for i in at[:r]])


def groupby(iterable, key=None):
    it = iter(iterable)
    return made_of(itertools.groupby, (it, key), _groupby(it, key))


def _groupby(it, key):
    # state: what was read ahead, and which group may still read.
    state = {"serial": 0}
    for v in it:
        state["value"], state["key"] = v, v if key is None else key(v)
        while "value" in state:
            state["serial"] += 1
            own = state["key"]
            yield own, _group(it, key, own, state["serial"], state)
            if "value" in state and state.get("fresh"):
                state["fresh"] = False
                continue
            # What the group left over is passed by.
            for v in it:
                k = v if key is None else key(v)
                if not (k == own):
                    state["value"], state["key"] = v, k
                    break
            else:
                return


def _group(it, key, own, serial, state):
    if state["serial"] != serial or "value" not in state:
        return
    yield state.pop("value")
    if state["serial"] != serial:
        return
    for v in it:
        k = v if key is None else key(v)
        if not (k == own):
            state["value"], state["key"], state["fresh"] = v, k, True
            return
        yield v
        if state["serial"] != serial:
            return


def tee(iterable, n=2, /):
    n = operator.index(n)
    if n < 0:
        raise ValueError("n must be >= 0")
    it = iter(iterable)
    read = []
    return tuple([_tee(it, read) for _ in range(n)])


def _tee(it, read):
    i = 0
    while True:
        if i == len(read):
            try:
                v = next(it)
            except StopIteration:
                return
            read.append(v)
        yield read[i]
        i += 1
