"""Functions of the standard library that are C in CPython, in Python: capture inlines these in their place."""

from copy import deepcopy as _deepcopy

import torch

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


# ---- copy ----

_copied = "braze copies"  # key in the memo: objects are told apart by identity, without the numbers that id() gives
_itself = (type(None), int, float, bool, complex, bytes, str, range, type, type(Ellipsis), type(NotImplemented), property)
_functions = (type(chain), type(len))


def deepcopy(x, memo=None, _nil=None):
    cls = type(x)
    if cls in _itself or cls in _functions or issubclass(cls, type):
        return x
    if memo is None:
        memo = {}
    seen = memo.setdefault(_copied, [])
    for before, copy in seen:
        if before is x:
            return copy
    if cls is list:
        y = []
        seen.append((x, y))
        for v in x:
            y.append(deepcopy(v, memo))
        return y
    if cls is tuple:
        y = tuple([deepcopy(v, memo) for v in x])
        for v, w in zip(x, y):
            if v is not w:
                seen.append((x, y))
                return y
        return x
    if cls is dict:
        y = {}
        seen.append((x, y))
        for k, v in x.items():
            y[deepcopy(k, memo)] = deepcopy(v, memo)
        return y
    if hasattr(cls, "__deepcopy__"):
        y = x.__deepcopy__(memo)
        if y is not x:
            seen.append((x, y))
        return y
    plain = cls.__reduce_ex__ is object.__reduce_ex__ and cls.__reduce__ is object.__reduce__ and cls.__new__ is object.__new__
    plain = plain and not hasattr(cls, "__getnewargs__") and not hasattr(cls, "__getnewargs_ex__") and not hasattr(cls, "__slots__")
    if not plain or not hasattr(x, "__dict__"):
        return _copy_as_c_does(x, memo)
    y = object.__new__(cls)
    seen.append((x, y))
    own = getattr(cls, "__getstate__", None)
    state = x.__dict__ if own is None or own is getattr(object, "__getstate__", None) else x.__getstate__()
    if state:
        state = deepcopy(state, memo)
        if hasattr(y, "__setstate__"):
            y.__setstate__(state)
        else:
            for k, v in state.items():
                y.__dict__[k] = v
    return y


def _copy_as_c_does(x, memo):
    # What the C parts of copying ask for only a real object has: capture ends here, and the rest of the copy runs uncompiled.
    for before, copy in memo.get(_copied, ()):
        memo[id(before)] = copy
    return _deepcopy(x, memo)


_copy_as_c_does._braze_disable = True


# ---- torch ----


class InferenceMode:
    """In place of the guard of torch.inference_mode."""

    def __init__(self, mode=True):
        self.mode = mode

    def __enter__(self):
        self.grad = torch.is_grad_enabled()
        self.before = set_inference(self.mode)
        torch._C._set_grad_enabled(not self.mode)

    def __exit__(self, *exc):
        torch._C._set_grad_enabled(self.grad)
        set_inference(self.before)


def set_inference(mode):
    return mode


class NoEffect:
    """In place of contexts that only matter to who watches the program run."""

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def __call__(self, fn):
        return fn


def call_without_grad(fn, *args, **kwargs):
    with torch.no_grad():
        return fn(*args, **kwargs)


def one_hot(tensor, num_classes=-1):
    if num_classes < 0:
        return torch.ops.aten.one_hot(tensor, num_classes)
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)


def apply_of(cls):
    """How a torch-level graph calls an autograd.Function."""

    def apply(*args):
        return cls.apply(*args)

    apply.__name__ = apply.__qualname__ = cls.__name__
    apply.__module__ = "braze_functions"
    return apply
