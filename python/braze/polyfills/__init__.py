"""Functions of the standard library that are C in CPython, in Python: capture inlines these in their place."""

_missing = object()


# ---- itertools ----


def chain(*iterables):
    for it in iterables:
        yield from it


def chain_from_iterable(iterables):
    for it in iterables:
        yield from it


def repeat(value, times=_missing):
    if times is _missing:
        while True:
            yield value
    for _ in range(times):
        yield value


def count(start=0, step=1):
    while True:
        yield start
        start += step


def cycle(iterable):
    seen = []
    for v in iterable:
        yield v
        seen.append(v)
    while seen:
        for v in seen:
            yield v


def islice(iterable, *args):
    s = slice(*args)
    start = 0 if s.start is None else s.start
    step = 1 if s.step is None else s.step
    it = iter(iterable)
    done = 0
    wanted = start
    while s.stop is None or wanted < s.stop:
        while done <= wanted:
            try:
                v = next(it)
            except StopIteration:
                return
            done += 1
        yield v
        wanted += step


def product(*iterables, repeat=1):
    pools = [tuple(p) for p in iterables] * repeat
    rows = [()]
    for pool in pools:
        rows = [row + (v,) for row in rows for v in pool]
    yield from rows


def accumulate(iterable, func=None, *, initial=None):
    it = iter(iterable)
    total = initial
    if initial is None:
        try:
            total = next(it)
        except StopIteration:
            return
    yield total
    for v in it:
        total = total + v if func is None else func(total, v)
        yield total


def zip_longest(*iterables, fillvalue=None):
    its = [iter(i) for i in iterables]
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


def pairwise(iterable):
    first = True
    before = None
    for v in iterable:
        if not first:
            yield before, v
        first = False
        before = v


def starmap(function, iterable):
    for args in iterable:
        yield function(*args)


def takewhile(predicate, iterable):
    for v in iterable:
        if not predicate(v):
            return
        yield v


def dropwhile(predicate, iterable):
    dropping = True
    for v in iterable:
        if dropping and predicate(v):
            continue
        dropping = False
        yield v


def filterfalse(predicate, iterable):
    for v in iterable:
        if not (v if predicate is None else predicate(v)):
            yield v


def compress(data, selectors):
    for d, s in zip(data, selectors):
        if s:
            yield d


def combinations(iterable, r):
    pool = tuple(iterable)
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


def permutations(iterable, r=None):
    pool = tuple(iterable)
    r = len(pool) if r is None else r
    for at in product(range(len(pool)), repeat=r):
        if len(set(at)) == r:
            yield tuple([pool[i] for i in at])


def groupby(iterable, key=None):
    group = []
    last = None
    for v in iterable:
        k = v if key is None else key(v)
        if group and k != last:
            yield last, iter(group)
            group = []
        last = k
        group.append(v)
    if group:
        yield last, iter(group)


def tee(iterable, n=2):
    values = list(iterable)
    return tuple([iter(values) for _ in range(n)])


# ---- operator ----


def itemgetter(*items):
    if len(items) == 1:
        return lambda obj: obj[items[0]]
    return lambda obj: tuple([obj[i] for i in items])


def attrgetter(*names):
    def get(obj, path):
        for name in path.split("."):
            obj = getattr(obj, name)
        return obj

    if len(names) == 1:
        return lambda obj: get(obj, names[0])
    return lambda obj: tuple([get(obj, n) for n in names])


def methodcaller(name, *args, **kwargs):
    return lambda obj: getattr(obj, name)(*args, **kwargs)
