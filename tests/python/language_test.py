"""Python's features inside compiled functions: same results as the interpreter, in one graph."""

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import typing

import pytest
import torch
import torch.nn.functional as F
from harness import check

X = lambda *s: torch.randn(*(s or (3, 4)))
CASES = []


def case(*args, **kw):
    """Registers a function with a builder of its arguments; kw goes to harness.check."""

    def add(fn):
        CASES.append(pytest.param(fn, args, kw, id=fn.__name__))
        return fn

    return add


class P:
    """A lazily built argument."""

    def __init__(self, make):
        self.make = make


x, y, row = P(X), P(X), P(lambda: X(4))


@pytest.mark.parametrize("fn, args, kw", CASES)
def test_language(fn, args, kw):
    check(fn, *[a.make() if isinstance(a, P) else a for a in args], **kw)


# ---- calls ----


@case(x, y)
def positional(a, b):
    return a + b


@case(x, scale=3.0)
def keyword(a, scale=2.0):
    return a * scale


@case(x)
def defaults(a, scale=2.0, *, shift=1):
    return a * scale + shift


@case(x, y, x)
def star_args(*args):
    out = args[0]
    for a in args[1:]:
        out = out + a
    return out, len(args)


@case(x)
def star_call(a):
    def f(p, q, *rest, k=1, **more):
        return p * q + sum(rest) + k + more["z"]

    return f(a, *(2, 3, 4), k=5, **{"z": 6})


@case(x)
def closure(a):
    k = 2

    def inner(t):
        return t * k

    k = 3
    return inner(a)


@case(x)
def nonlocal_write(a):
    n = 0

    def bump():
        nonlocal n
        n += 1
        return a * n

    return bump() + bump(), n


@case(x)
def recursion(a):
    def go(t, n):
        return t if n == 0 else go(t * 2, n - 1)

    return go(a, 4)


@case(x)
def lambdas(a):
    return (lambda t, k=2: t ** k)(a)


def twice(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs) * 2

    return wrapper


@twice
def decorated_inner(a):
    return a + 1


@case(x)
def decorator(a):
    return decorated_inner(a)


@case(x)
def partial(a):
    return functools.partial(torch.add, alpha=2)(a, a)


@case(x)
def partial_user(a):
    def f(p, q, r):
        return p * q + r

    return functools.partial(f, a, r=1)(3)


# ---- control flow ----


@case(x)
def constant_branch(a, flag=True):
    return a + 1 if flag else a - 1


@case(x)
def shape_branch(a):
    if a.shape[0] > 2 and a.dim() == 2:
        return a.sum(0)
    return a


@case(x)
def for_range(a):
    for i in range(1, 6, 2):
        a = a * i
    return a


@case(x)
def while_loop(a):
    n = 0
    while n < 4:
        a, n = a + n, n + 1
        if n == 3:
            break
    else:
        a = a * 100
    return a


@case(x)
def loop_else_continue(a):
    for i in range(4):
        if i % 2:
            continue
        a = a + i
    else:
        a = a * 2
    return a


@case(x)
def iterate_tensor(a):
    return sum(r * i for i, r in enumerate(a))


@case(x)
def match_statement(a):
    match tuple(a.shape):
        case (3, n):
            return a * n
        case _:
            return a


@case(x)
def walrus(a):
    if (n := a.shape[1]) > 3:
        return a * n
    return a


@case(x, graphs=0)
def chained_comparison(a):
    return a if 1 < a.shape[0] <= 3 != 7 else -a


@case(x)
def try_except(a):
    try:
        raise KeyError("k")
    except KeyError as e:
        return a + len(e.args)
    finally:
        a = a * 2


@case(x)
def try_except_inlined(a):
    def f(d, k):
        return d[k]

    try:
        return f({}, "missing")
    except (KeyError, ValueError):
        return a - 1


@case(x)
def try_finally(a):
    log = []
    try:
        log.append("body")
        r = a * 2
    finally:
        log.append("finally")
    return r, log


@case(x, graphs=0)
def attribute_error(a):
    try:
        return a.no_such_attribute
    except AttributeError:
        return a


@case(x)
def custom_exception(a):
    class Mine(Exception):
        def __init__(self, n):
            self.n = n

    try:
        raise Mine(3)
    except Mine as e:
        return a * e.n


@case(x, graphs=None)
def escaping_exception(a):
    b = a + 1
    raise ValueError(f"bad shape {tuple(b.shape)}")


@case(x)
def assertion(a):
    assert a.shape[0] == 3, "three rows"
    return a + 1


# ---- containers ----


@case(x, y)
def lists(a, b):
    v = [a]
    v.append(b)
    v.extend([a * 2, b * 2])
    v.insert(0, a + b)
    v.reverse()
    last = v.pop()
    v[0] = v[0] + 1
    del v[1]
    return v, last, len(v), v[::2], v + [last], v * 2


@case(x)
def list_methods(a):
    v = [3, 1, 2]
    v.sort()
    w = sorted([5, 4], reverse=True)
    return a * v[0], v, w, v.index(2), v.count(1), 3 in v, v == [1, 2, 3]


@case(x, y)
def dicts(a, b):
    d = {"a": a, "b": b}
    d["c"] = d["a"] + d["b"]
    d.update(e=a * 2, **{"f": b * 2})
    got = d.get("zzz", a)
    popped = d.pop("e")
    d.setdefault("g", popped)
    return d, got, list(d), [k for k, _ in d.items()], "a" in d, len(d), {**d, "h": a}


@case(x)
def dict_order_and_delete(a):
    d = dict(one=1, two=2)
    del d["one"]
    d["one"] = 3
    out = a
    for k, v in d.items():
        out = out * v + len(k)
    return out


@case(x)
def sets(a):
    s = {1, 2, 3} & {2, 3, 4}
    s.add(7)
    return a * len(s), sorted(s | {9}), 2 in s, frozenset([1]) <= s


@case(x, y)
def tuples(a, b):
    t = (a, b) + (a,)
    p, *rest = t
    return p + rest[-1], t[1:], t.index(a) if False else 0, len(t)


@case(x)
def unpacking(a):
    (p, q), [r, *s] = (a, 2), [3, 4, 5]
    return p * q + r + sum(s)


@case(x)
def comprehensions(a):
    v = [a * i for i in range(3) if i != 1]
    d = {i: r for i, r in enumerate(v)}
    s = {i % 2 for i in range(4)}
    return v, d, sorted(s), sum(t.sum() for t in v)


@case(x)
def nested_comprehension(a):
    return [[a[i, j] for j in range(2)] for i in range(2)]


@case(x)
def named_tuple(a):
    Pair = collections.namedtuple("Pair", "left right")
    p = Pair(a, 2)
    return p.left * p.right + p[1], p._replace(right=3).right


class Point(typing.NamedTuple):
    x: torch.Tensor
    y: int = 2


@case(x)
def typed_named_tuple(a):
    p = Point(a)
    return Point(p.x * p.y, y=5)


@case(x)
def ordered_dict(a):
    d = collections.OrderedDict()
    d["b"] = a
    d["a"] = a + 1
    d.move_to_end("b")
    return d


@case(x)
def default_dict(a):
    d = collections.defaultdict(list)
    d["k"].append(a)
    d["k"].append(a + 1)
    return d["k"], len(d)


@case(x, graphs=0)
def deques(a):
    d = collections.deque([1, 2], maxlen=3)
    d.append(a)
    d.appendleft(5)
    return d.pop() if False else list(d)[1:]


@case(x, [1, 2, 3], {"k": 2.0})
def containers_in(a, v, d):
    return a * v[1] + d["k"] + len(v)


@case([P(X).make(), P(X).make()])
def list_of_tensors(v):
    return torch.cat(v) + torch.stack(v).sum()


@case({"a": X(), "b": {"c": X()}})
def nested_dict_of_tensors(d):
    return {"sum": d["a"] + d["b"]["c"], "same": d["b"]}


@case(x, [])
def argument_list_mutated(a, out):
    out.append(a + 1)
    out.append(3)
    return a


@case(x, {"n": 1})
def argument_dict_mutated(a, d):
    d["n"] += 1
    d["t"] = a * 2
    return a * d["n"]


# ---- iteration ----


@case(x, y)
def zips(a, b):
    return [p * q for p, q in zip([a, b], (b, a), strict=True)], dict(zip("ab", [1, 2]))


@case(x)
def enumerates(a):
    out = a
    for i, (k, v) in enumerate({"p": 1, "q": 2}.items(), start=1):
        out = out * i + v
    return out


@case(x)
def maps(a):
    return list(map(lambda t, n: t * n, [a, a], [1, 2])), list(filter(None, [0, 1, 2])), list(reversed([1, 2]))


@case(x)
def itertools_(a):
    pairs = list(itertools.product([1, 2], [3]))
    chained = list(itertools.chain([1], (2, 3), itertools.repeat(4, 2)))
    grouped = list(itertools.islice(itertools.count(5, 2), 3))
    acc = list(itertools.accumulate([1, 2, 3]))
    return a * len(pairs) + sum(chained) + sum(grouped) + sum(acc), list(itertools.zip_longest([1], [2, 3])), list(itertools.pairwise([1, 2, 3]))


@case(x)
def generators(a):
    def gen(n):
        for i in range(n):
            got = yield a * i
            assert got is None

    g = gen(3)
    first = next(g)
    return first, list(g)


@case(x)
def generator_expression(a):
    return max(i * 2 for i in range(4)), torch.stack(tuple(a + i for i in range(2)))


@case(x)
def yield_from(a):
    def inner():
        yield a
        yield a + 1
        return 5

    def outer():
        r = yield from inner()
        yield a * r

    return list(outer())


@case(x)
def iterators(a):
    it = iter([1, 2, 3])
    next(it)
    return a * sum(it), next(it, "end")


@case(x)
def functools_reduce(a):
    return functools.reduce(operator.add, [a, a * 2, a * 3]), functools.reduce(lambda p, q: p + q, [1, 2, 3])


@case(x, graphs=0)
def any_all(a):
    return a if any(n > 2 for n in a.shape) and all([1, True]) else -a


# ---- strings and numbers ----


@case(x)
def f_strings(a):
    return a + 1, f"{a.shape[0]}x{a.shape[1]:>4}|{3.14159:.2f}|{'s'!r}|{a.dtype}"


@case(x)
def strings(a):
    parts = "a,b,c".split(",")
    return a * len(parts), "-".join(parts), "abc".upper().startswith("AB"), "x%d" % 3, "{:03d}".format(7), "ab"[::-1]


@case(x)
def numbers(a):
    return a * math.sqrt(16) + 7 // 2 + 7 % 4 + 2**5 + (-7) // 2, divmod(7, 3), round(2.567, 1), abs(-3), int("5"), float("1.5"), 5 / 2


@case(x, graphs=0)
def bools(a):
    return a, not a.shape, 1 and 2, 0 or "b", bool([]), True + True, None is None, a is a


@case(x)
def int_methods(a):
    return a * (6).bit_length(), 3 & 6, 3 | 6, 3 ^ 6, ~3, 1 << 4, min(3, 1, 2), max([4, 9]), pow(2, 5, 7)


# ---- objects ----


class Counter:
    total = 0

    def __init__(self, start):
        self.n = start

    def step(self, t):
        self.n += 1
        return t * self.n

    @property
    def double(self):
        return self.n * 2

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def plus(p, q):
        return p + q

    def __call__(self, t):
        return t + self.n

    def __getitem__(self, i):
        return self.n + i

    def __len__(self):
        return self.n

    def __contains__(self, v):
        return v == self.n

    def __enter__(self):
        self.n += 10
        return self

    def __exit__(self, *exc):
        self.n -= 10
        return False

    def __add__(self, other):
        return Counter(self.n + (other.n if isinstance(other, Counter) else other))

    __radd__ = __add__

    def __eq__(self, other):
        return isinstance(other, Counter) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __iter__(self):
        return iter(range(self.n))


class Child(Counter):
    def step(self, t):
        return super().step(t) + 1

    def __getattr__(self, name):
        if name == "virtual":
            return 42
        raise AttributeError(name)


@case(x)
def new_object(a):
    c = Counter(1)
    return c.step(a) + c.double, c


@case(x)
def object_protocols(a):
    c = Counter.make(3)
    with c as d:
        inside = d.n
    return c(a) + c[2] + len(c), inside, c.n, 3 in c, (c + 1).n, (2 + c).n, c == Counter(3), Counter.plus(1, 2), list(c), bool(c)


@case(x)
def inheritance(a):
    c = Child(2)
    return c.step(a), c.virtual, isinstance(c, Counter), issubclass(Child, Counter), hasattr(c, "nope"), getattr(c, "nope", 7), type(c) is Child


@case(x, Counter(4))
def argument_object(a, c):
    r = c.step(a)
    c.extra = a + 1
    return r + c.n


@case(x)
def class_attribute(a):
    return a + Counter.total


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.names = self.names + ["post"]


@case(x)
def dataclass_made(a):
    s = Settings(scale=3.0)
    s.names.append("more")
    return a * s.scale, s, [f.name for f in dataclasses.fields(s)], dataclasses.replace(s, scale=1.0).scale


@case(x, Settings())
def dataclass_argument(a, s):
    return a * s.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    t: torch.Tensor


@case(x)
def frozen_dataclass(a):
    f = Frozen(2, a)
    return f.t * f.n


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@case(x, Colour.BLUE)
def enums(a, c):
    return a * c.value + (1 if c is Colour.RED else 5), c.name, Colour("1") if False else Colour(1), [m.name for m in Colour]


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a, self.b = a, 2


@case(x)
def slots(a):
    s = Slots(a)
    s.b += 1
    return s.a * s.b


@contextlib.contextmanager
def doubled(log):
    log.append("in")
    try:
        yield 2
    finally:
        log.append("out")


@case(x)
def context_manager(a):
    log = []
    with doubled(log) as k:
        a = a * k
    with contextlib.nullcontext(3) as n, contextlib.suppress(KeyError):
        a = a + n
    return a, log


@functools.lru_cache
def cached(n):
    return n * 2


@case(x)
def lru_cache(a):
    return a * cached(3)


@case(x)
def typing_cast(a):
    t = typing.cast(torch.Tensor, a)
    v: typing.Optional[int] = 3
    return t * v


# ---- tensors ----


@case(x)
def tensor_attributes(a):
    return a.shape, a.dtype, a.device, a.ndim, a.size(0), a.numel(), a.is_contiguous(), a.T.shape, len(a), a.stride(), a.is_floating_point()


@case(x, y)
def tensor_operators(a, b):
    return a + b, a - 2, 3 - a, a * b, a / 2, 1 / (a + 9), a**2, -a, abs(a), a > b, a == a, a @ b.T, a // 2, a % 3, ~(a > 0), (a > 0) & (b > 0)


@case(x)
def tensor_indexing(a):
    return a[0], a[:, 1:3], a[..., -1], a[None], a[[0, 2]], a[a > 0].numel() if False else a[torch.tensor([1, 0])], a[0, 1], a[1:, ::2]


@case(x)
def tensor_inplace(a):
    b = a.clone()
    b += 1
    b.mul_(2)
    b[0] = 5
    b[:, 1] = b[:, 2]
    return b


@case(x)
def argument_inplace(a):
    a.add_(1)
    return a * 2


@case(x)
def inplace_through_view(a):
    b = a * 1
    v = b[1]
    v.zero_()
    return b, v


@case(x)
def factories(a):
    return torch.zeros(2, 3) + 1, torch.arange(4), torch.full((2,), 7.0), torch.ones_like(a), a.new_zeros(2), torch.tensor([1.0, 2.0]) * 2, torch.eye(3)


@case(x)
def reductions(a):
    return a.sum(), a.mean(0), a.max(), a.max(1), a.argmax(-1), a.std(), a.norm(), a.var(1, keepdim=True), a.prod(1), a.amin(0), (a > 0).any(), a.cumsum(0)


@case(x)
def views(a):
    return a.view(-1), a.reshape(2, 6), a.transpose(0, 1), a.permute(1, 0).contiguous(), a.unsqueeze(0), a.expand(2, 3, 4), a.flatten(), a.chunk(2, 1), a.split([1, 2])


@case(x)
def dtypes(a):
    return a.double(), a.half(), a.to(torch.bfloat16), a.int(), a.bool(), a.to(torch.float64).to(a.dtype), a.type_as(a), a.long()


@case(x, row, row)
def functional(a, w, b):
    return F.layer_norm(a, (4,), w, b), F.softmax(a, -1), F.gelu(a), F.silu(a), F.relu(a), F.log_softmax(a, 0), F.dropout(a, 0.5, False), F.pad(a, (1, 1)), F.normalize(a)


@case(x)
def where_and_masks(a):
    return torch.where(a > 0, a, -1.0), a.masked_fill(a < 0, 0), a.clamp(-0.5, 0.5), torch.triu(a), torch.maximum(a, -a)


@case(x)
def einsum_matmul(a):
    return torch.einsum("ij,kj->ik", a, a), torch.bmm(a[None], a.T[None]), a.mv(a[0]), torch.outer(a[0], a[1])


@case(x)
def no_grad(a):
    with torch.no_grad():
        b = a * 2
        inside = torch.is_grad_enabled()
    return b, inside, torch.is_grad_enabled()


@case(x)
def returns_input(a):
    return a, a.view(-1), [a, a]


@case(x)
def returns_constants(a):
    return None, 3, "s", (1.5, True), a + 1, torch.float32, slice(1, 2)


@case(x, graphs=0)
def no_tensor_result(a):
    return a.shape[0] * 2


@case(x, None, graphs=0)
def none_argument(a, m):
    return a if m is None else a + m


# ---- graph breaks: still right, in more graphs ----


@case(x, graphs=2)
def print_breaks(a):
    b = a + 1
    print("value")
    return b * 2


@case(x, graphs=2)
def item_breaks(a):
    n = (a * 0 + 3).sum().item()
    return a * n


@case(x, graphs=2)
def data_dependent_if(a):
    b = a * 2
    if b.sum() > 0:
        return b + 1
    return b - 1


def callee_with_break(t):
    u = t * 2
    print("inside")
    return u + 1


@case(x, graphs=None)
def break_in_callee(a):
    b = a + 1
    c = callee_with_break(b)
    return c * b


@case(x, graphs=None)
def break_in_loop(a):
    for i in range(3):
        a = a + i
        if i == 1:
            print("one")
    return a * 2


@case(x, graphs=None)
def break_in_try(a):
    try:
        b = a + 1
        print("try")
        c = b * 2
        raise ValueError("x")
    except ValueError:
        return c - 1


@case(x, graphs=None)
def break_in_with(a):
    with torch.no_grad():
        b = a + 1
        print("with")
        c = b * 2
    return c, torch.is_grad_enabled()
