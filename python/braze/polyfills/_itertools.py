"""itertools."""

import operator
import sys

_missing = object()


def chain(*iterables):
    return _chain(iter(iterables))


def chain_from_iterable(iterable, /):
    return _chain(iter(iterable))


def _chain(iterables):
    for it in iterables:
        for v in it:
            yield v


def repeat(object, times=_missing):
    return _repeat(object, None if times is _missing else operator.index(times))


def _repeat(value, times):
    if times is None:
        while True:
            yield value
    for _ in range(times):
        yield value


def count(start=0, step=1):
    for n in (start, step):
        if not (hasattr(n, "__index__") or hasattr(n, "__float__") or hasattr(n, "__complex__")):
            raise TypeError("a number is required")
    if type(start) is not int and isinstance(start, int) and isinstance(step, int):
        # Of integers one apart that fit a machine's word the first, too, is given as an int: count(True).
        first = int.__add__(start, 0)
        if int.__add__(step, 0) == 1 and -sys.maxsize - 1 <= first <= sys.maxsize:
            return _count(first, 1)
    return _count(start, step)


def _count(n, step):
    while True:
        yield n
        n = n + step


def cycle(iterable, /):
    return _cycle(iter(iterable))


def _cycle(it):
    seen = []
    for v in it:
        yield v
        seen.append(v)
    while seen:
        for v in seen:
            yield v


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
    return _islice(iter(iterable), start, stop, step)


def _islice(it, wanted, stop, step):
    done = 0
    while stop is None or wanted < stop:
        while done <= wanted:
            try:
                v = next(it)
            except StopIteration:
                return
            done += 1
        yield v
        wanted += step
    while done < stop:
        try:
            next(it)
        except StopIteration:
            return
        done += 1


def product(*iterables, repeat=1):
    repeat = operator.index(repeat)
    if repeat < 0:
        raise ValueError("repeat argument cannot be negative")
    return _product([tuple(p) for p in iterables] * repeat)


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
    return _accumulate(iter(iterable), func, initial)


def _accumulate(it, func, total):
    if total is None:
        try:
            total = next(it)
        except StopIteration:
            return
    yield total
    for v in it:
        total = total + v if func is None else func(total, v)
        yield total


def zip_longest(*iterables, fillvalue=None):
    return _zip_longest([iter(i) for i in iterables], fillvalue)


def _zip_longest(its, fillvalue):
    left = len(its)
    done = [False] * left
    while left:
        row = []
        for i, it in enumerate(its):
            v = fillvalue
            if not done[i]:
                try:
                    v = next(it)
                except StopIteration:
                    done[i] = True
                    left -= 1
                    if not left:
                        return
            row.append(v)
        yield tuple(row)


def pairwise(iterable, /):
    return _pairwise(iter(iterable))


def _pairwise(it):
    try:
        before = next(it)
    except StopIteration:
        return
    for v in it:
        yield before, v
        before = v


def starmap(function, iterable, /):
    return _starmap(function, iter(iterable))


def _starmap(function, it):
    for args in it:
        yield function(*args)


def takewhile(predicate, iterable, /):
    return _takewhile(predicate, iter(iterable))


def _takewhile(predicate, it):
    for v in it:
        if not predicate(v):
            return
        yield v


def dropwhile(predicate, iterable, /):
    return _dropwhile(predicate, iter(iterable))


def _dropwhile(predicate, it):
    dropping = True
    for v in it:
        if dropping and predicate(v):
            continue
        dropping = False
        yield v


def filterfalse(function, iterable, /):
    return _filterfalse(function, iter(iterable))


def _filterfalse(function, it):
    for v in it:
        if not (v if function is None else function(v)):
            yield v


def compress(data, selectors):
    return _compress(iter(data), iter(selectors))


def _compress(data, selectors):
    for d, s in zip(data, selectors):
        if s:
            yield d


def _length(r):
    r = operator.index(r)
    if r < 0:
        raise ValueError("r must be non-negative")
    return r


def combinations(iterable, r):
    return _combinations(tuple(iterable), _length(r))


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
    return _combinations_with_replacement(tuple(iterable), _length(r))


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
    return _permutations(pool, len(pool) if r is None else _length(r))


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
    return _groupby(iter(iterable), key)


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
