"""Open integers in Python code: whatever a program does with one, it is the number that eager has."""

import math

import pytest
import torch
from dynamic_test import Counted, r
from harness import outcome, same

VALUES = (3, 5, 9, 4, 16, 5)

# Of x (n rows) and an int n; results that hold numbers, texts, containers and tensors.
PROGRAMS = {
    "text": lambda x, n: (
        str(n),
        repr(n),
        f"{n:>4}|{n!r}",
        "%d %s" % (n, n),
        "{}".format(n),
        format(n, "x"),
        "-".join([str(n)]),
    ),
    "text of containers": lambda x, n: (
        str([n]),
        f"{(n, 1)}",
        repr({n: n}),
        str(x.shape),
        f"{x.shape}",
        repr(x.size()),
        x.shape.__repr__(),
    ),
    "text as argument": lambda x, n: (
        "{0}:{a}".format(n, a=n + 1),
        "ab".ljust(n, "."),
        "a,b,c,d".split(",", n - 2),
        "x" * n,
    ),
    "floats": lambda x, n: (n / 2, n * 0.5, n + 0.5, 2.5 - n, n**0.5, n**-1, float(n), 7 // (n + 0.0), n % 2.5, -n / 3),
    "integers": lambda x, n: (
        n**2,
        n**3,
        2**n,
        pow(n, 2, 5),
        divmod(n, 3),
        divmod(-7, n),
        -n // 2,
        -n % 3,
        abs(-n),
        +n,
        round(n),
        int(n),
    ),
    "large": lambda x, n: (n * 10**12, n + 2**62, n * n * 2**40, 2**70 - n, n << 60, n**20),
    "bits": lambda x, n: (n & 3, n | 8, n ^ 5, n << 2, n >> 1, ~n, 1 << n, n & n),
    "bools": lambda x, n: (
        (n > 4) + 1,
        (n > 4) * 3,
        (n > 4) & (n < 10),
        (n > 4) | False,
        not n,
        bool(n),
        (n > 4) == True,
        sum([n > 1, n > 4]),
    ),  # noqa: E712
    "bool results": lambda x, n: (n > 4, n == 5, n != 5, [n >= 5], {"a": n < 5}),
    "mixed comparisons": lambda x, n: (
        n > 4.5,
        n == 5.0,
        n == "5",
        n == None,
        n is None,
        n in (5, 9),
        n in range(6),
        n in {3, 5},
        n in "5 9".split(),
    ),  # noqa: E711
    "extremes": lambda x, n: (
        min(n, 4),
        max(n, 4),
        max(n, 4.5),
        min(n, 2.5),
        max([n, 1]),
        min(n, True),
        max(n, 4, key=lambda v: -v),
        max(n, n + 1),
    ),
    "sums": lambda x, n: (
        sum([n, 1]),
        sum((n, 0.5)),
        sum([n] * 3),
        sorted([5, n, 4]),
        sorted([n, 4], reverse=True),
        any([n - 5, 0]),
        all([n, 1]),
    ),
    "methods": lambda x, n: (
        n.bit_length(),
        n.real,
        n.imag,
        n.numerator,
        n.__add__(2),
        n.to_bytes(2, "big"),
        n.__class__,
        n.conjugate(),
        n.is_integer() if hasattr(n, "is_integer") else 0,
    ),
    "types": lambda x, n: (
        type(n),
        isinstance(n, int),
        isinstance(n, float),
        isinstance(n, (str, int)),
        type(n) is int,
        callable(n),
        hasattr(n, "shape"),
    ),
    "math": lambda x, n: (
        math.sqrt(n),
        math.log2(n),
        math.floor(n / 2),
        math.gcd(n, 6),
        math.prod([n, 2]),
        math.isfinite(n),
        math.ceil(n / 3),
        math.comb(n, 2),
    ),
    "indices": lambda x, n: (
        "abcdefghijklmnopqrst"[n],
        [*range(20)][n - 1],
        (1, 2, 3)[n % 3],
        "abcdef"[:n],
        list(range(20))[-n:],
        range(30)[n],
        range(n)[-1],
    ),
    "keys": lambda x, n: (
        {n: 1},
        {n, 3},
        {n: "a"}.get(5),
        dict.fromkeys([n, 1]),
        {(n, 1): 2},
        frozenset([n]),
        {n} | {5},
        {3, 5} & {n},
        hash(n),
        hash((n, 1)),
    ),
    "ranges": lambda x, n: (
        list(range(n)),
        list(range(0, n, 2)),
        len(range(n)),
        [i for i in range(n)],
        sum(range(n)),
        list(enumerate("ab", n)),
        list(zip(range(n), "abc")),
    ),
    "repetition": lambda x, n: ([0] * n, (1, 2) * n, n * [x.sum()], "ab" * n, [[n]] * 2, bytes(n)),
    "shapes": lambda x, n: (
        tuple(x.shape),
        list(x.shape),
        x.shape[0],
        x.shape[-1],
        x.shape.numel(),
        x.shape + (1,),
        x.shape[:1],
        x.size(0),
        len(x.shape),
        x.shape == (n, 4),
    ),
    "shape methods": lambda x, n: (
        x.shape.index(4),
        x.shape.count(4),
        n in x.shape,
        x.shape == torch.Size([5, 4]),
        x.numel(),
        x.nelement(),
        x.dim(),
        x.stride(),
        x.stride(0),
        len(x),
    ),
    "star": lambda x, n: (x.new_zeros(*x.shape), x.reshape(*x.shape[::-1]), torch.ones(*[n, 2])),
    "strings to numbers": lambda x, n: (
        int(str(n)) + 1,
        int(f"{n}", 16),
        chr(n + 60),
        hex(n),
        oct(n),
        bin(n),
        ord(str(n)[0]),
    ),
    "arithmetic with tensors": lambda x, n: (
        x * n,
        x + n,
        n - x,
        x / n,
        x // n,
        x % n,
        x**n,
        n / (x.abs() + 1),
        x * (n / 2),
        x * (n > 4),
        x - (n, 1)[0],
    ),
    "comparison with tensors": lambda x, n: (
        x > n,
        n < x,
        x == n,
        torch.arange(n) == n - 1,
        torch.where(x > 0, x, n),
        x.clamp(max=n),
        x.clamp(-n, n),
    ),
    "factories": lambda x, n: (
        torch.arange(n),
        torch.arange(1, n),
        torch.zeros(n),
        torch.full((2,), n),
        torch.full((n,), 0.5),
        torch.eye(n),
        torch.ones(n, n),
        torch.linspace(0, 1, n),
    ),
    "tensors of numbers": lambda x, n: (
        torch.tensor(n),
        torch.tensor([n, 1]),
        torch.tensor(n / 2),
        x.new_tensor([n]),
        torch.as_tensor(n),
        torch.scalar_tensor(n),
        torch.tensor([[n], [2]]),
    ),
    "slices": lambda x, n: (
        x[: n - 1],
        x[-n:],
        x[n // 2 :],
        x[n - 1],
        x[..., : n - 1],
        x[n - 2 : n],
        x[: n // 2],
        x[:: n - 1],
        x[-1:],
        x[slice(1, n)],
    ),
    "views": lambda x, n: (
        x.view(n, -1),
        x.reshape(-1, n),
        x.view(-1),
        x.unflatten(0, (n, 1)),
        x.unsqueeze(0).expand(n, -1, -1),
        x.t().reshape(4, n),
        x.flatten(),
    ),
    "splits": lambda x, n: (
        x.split(n - 1),
        x.chunk(2),
        x.split([1, n - 1]),
        torch.cat([x, x])[:n],
        x.unbind(1),
        x.tensor_split(2),
    ),
    "other arguments": lambda x, n: (
        x.roll(n - 1, 0),
        x.narrow(0, 1, n - 1),
        torch.tril(x, n - 4),
        x.diagonal(n - n),
        x.repeat(n - 2, 1),
        torch.nn.functional.pad(x, (n, 0)),
        x.std(correction=1),
        x.topk(min(n, 3), 0).values,
        x.kthvalue(n, 0).values,
    ),
    "keyword": lambda x, n: (
        x.sum(dim=n - n),
        torch.full(size=(n,), fill_value=n),
        x.softmax(dim=-1) / math.sqrt(n),
        torch.nn.functional.one_hot(torch.arange(3), num_classes=n),
    ),
    "functions": lambda x, n: (
        (lambda a, b=n: a + b)(1),
        (lambda *a: a)(n, 1),
        (lambda **k: k)(n=n),
        list(map(lambda v: v * n, [1, 2])),
        [*filter(lambda v: v < n, [1, 4, 9])],
    ),
    "sym functions": lambda x, n: (
        torch.sym_max(n, 4),
        torch.sym_min(n, 4),
        torch.sym_int(n / 2),
        torch.sym_not(n > 4),
        torch.sym_float(n),
    ),
    "checks": lambda x, n: (torch._check(n > 1), torch._check_is_size(n), torch._check_is_size(n - 3), x[: n - 1]),
    "division by zero": lambda x, n: x + n // (n - 5),
    "modulo zero": lambda x, n: x + n % (n - 5),
    "index error": lambda x, n: [x, x * 2, x * 3][n],
    "type error": lambda x, n: x + ("a" + n),
    "error text": lambda x, n: {"a": x}[n],
}


def branches(x, n):
    out = []
    if n > 4 and n % 2:
        out.append("odd")
    elif n == 4:
        out.append("four")
    out.append("big" if n >= 9 else "small")
    while n > 4:
        n = n // 2
        out.append(n)
    match n:
        case 4:
            out.append("4")
        case int():
            out.append("int")
    assert n > 0, n
    return x * len(out), out


def state(x, n):
    class Box:
        pass

    b = Box()
    b.n = n
    b.n += 1
    d = {"k": n}
    d["k"] += 1
    d[n] = "v"
    s = [n]
    s.insert(n, 1)
    s += [n, n + 1]
    return x + b.n, d, s, s.index(n), s.count(n), getattr(b, "n")


def handled(x, n):
    try:
        y = x / 1 + n // (n - 5)
    except ZeroDivisionError as e:
        return x, str(e), n
    try:
        raise KeyError(n)
    except KeyError as e:
        return y, e.args, f"{e}"


PROGRAMS |= {"branches": branches, "state": state, "handled": handled}


def check(f, arguments, **kw):
    c = Counted(f, **kw)
    for n in VALUES:
        args = arguments(n)
        want, got = outcome(f, args, {}), outcome(c, args, {})
        assert want[0] == got[0], f"n={n}: {got}, expected {want}"
        same(want[1], got[1], f"n={n}")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
@torch.no_grad()
def test_integer_argument(name, dynamic):
    check(PROGRAMS[name], lambda n: (r(n, 4), n), dynamic=dynamic)


@pytest.mark.parametrize("name", PROGRAMS)
@torch.no_grad()
def test_size(name):
    check(lambda x: PROGRAMS[name](x, x.shape[0]), lambda n: (r(n, 4),), dynamic=True)
