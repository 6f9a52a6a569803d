"""Calls and control flow inside compiled functions: same results as the interpreter, in one graph unless a case says otherwise."""

import functools
import types
from typing import Dict, List, Optional

import pytest
import torch
from cases import run, x, y
from harness import Cases

case = Cases()


@pytest.mark.parametrize("fn, args, kw", case)
def test_language(fn, args, kw):
    run(fn, args, kw)


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
    return (lambda t, k=2: t**k)(a)


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


@case(x)
def subscripts_of_typing_forms(a):
    some: List[torch.Tensor] = torch.jit.annotate(List[torch.Tensor], [])
    some.append(a + 1)
    return some[0], Dict[str, int] is Dict[str, int], Optional[int] == int


class Path:
    @functools.lru_cache()  # noqa: B019
    def __new__(cls, root):
        return super().__new__(cls)

    def __init__(self, root):
        self.root = root


@case(x)
def new_that_is_cached(a):
    return a * len(Path("abc").root)


UNION = int | None


@case(x)
def isinstance_of_an_object_of_a_type_in_c(a):
    return a + isinstance(UNION, types.UnionType) + 2 * isinstance(UNION, type)
