"""What Python and PyTorch keep between calls, read by compiled functions: caches, context variables, weak references, modes."""

import contextlib
import contextvars
import functools
import gc
import logging
import weakref
from fractions import Fraction

import pytest
import torch
from harness import same

import braze

x = torch.arange(1.0, 7).reshape(2, 3)


# ---- functools.lru_cache ----


def cache_of(log, **options):
    @functools.lru_cache(**options)
    def fn(*args, **kw):
        log.append((args, kw))
        return len(log)

    return fn


@pytest.mark.parametrize("options", [{"maxsize": None}, {"maxsize": 4}, {"maxsize": 4, "typed": True}])
def test_cached_function_runs_once(options):
    log, eager_log = [], []
    cached, eager_cached = cache_of(log, **options), cache_of(eager_log, **options)

    def body(t, f):
        return t * f(2, k="a") + f(2, k="a") + f("s") + f(1.0) + f(True)

    compiled = braze.compile(lambda t: body(t, cached), fullgraph=True)
    for _ in range(3):
        same(body(x, eager_cached), compiled(x))
    assert log == eager_log
    assert cached.cache_info() == eager_cached.cache_info()


def test_cleared_cache_is_noticed():
    log = []
    cached = cache_of(log, maxsize=None)
    compiled = braze.compile(lambda t: t * cached(0), fullgraph=True)
    same(x * 1, compiled(x))
    same(x * 1, compiled(x))
    cached.cache_clear()
    same(x * 2, compiled(x))
    same(x * 2, compiled(x))
    assert len(log) == 2


def test_cache_of_methods_and_objects():
    class Config:
        @functools.lru_cache
        def scale(self, k):
            return [k]

    config = Config()
    compiled = braze.compile(lambda t: (t * config.scale(2)[0], config.scale(2)), fullgraph=True)
    assert compiled(x)[1] is config.scale(2) is compiled(x)[1]


def test_the_effects_of_a_cached_call_that_raises_come_once():
    """It is not cached: each call of the compiled function makes it, as eager does, and the capture never."""

    def make():
        log = []

        @functools.lru_cache
        def reciprocal(n):
            try:
                return 1 // n
            except ZeroDivisionError as e:
                log.append(str(e))
                raise ValueError(n) from e
            finally:
                log.append("end")

        def fn(t, n):
            try:
                t = t * reciprocal(n)
            except ValueError as e:
                t = t - len(str(e))
            return t * 3

        return fn, log, reciprocal

    fn, log, cache = make()
    eager, eager_log, eager_cache = make()
    compiled = braze.compile(fn, dynamic=False)
    for n in (0, 0, 2, 2, 0):
        same(eager(x, n), compiled(x, n))
        assert log == eager_log
    assert cache.cache_info() == eager_cache.cache_info()
    assert braze.explain(fn, x, 0).graph_count == 1


def test_the_first_call_of_a_cached_function_is_made_once():
    """Whatever it does: effects, calls that can't be captured, calls of itself."""

    def make():
        log = []

        @functools.lru_cache(None)
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        @functools.lru_cache(None)
        def noted(n):
            log.append(n)
            return fib(n) + len(log)

        @functools.lru_cache(None)
        def opaque(n):
            return len(str(Fraction(n, 3))) + (log.append("opaque") or 0)

        @functools.lru_cache(None)
        def mask(n):
            return torch.ones(n).cumsum(0)

        def fn(t):
            return t * noted(9) + opaque(5) + mask(3) + noted(4) + fib(12)

        return fn, log, (fib, noted, opaque, mask)

    fn, log, caches = make()
    eager, eager_log, eager_caches = make()
    compiled = braze.compile(fn, fullgraph=True)
    for _ in range(3):
        same(eager(x), compiled(x))
        assert log == eager_log
    assert [c.cache_info() for c in caches] == [c.cache_info() for c in eager_caches]


def test_cached_function_of_tensors_is_inlined():
    @functools.lru_cache
    def fn(t, k=2):
        return t * k

    compiled = braze.compile(lambda t: fn(t.sin()), fullgraph=True)
    same(x.sin() * 2, compiled(x))


def test_cache_that_keeps_nothing():
    log = []
    cached = cache_of(log, maxsize=0)
    compiled = braze.compile(lambda t: t * cached(0))
    for n in (1, 2, 3):
        same(x * n, compiled(x))


# ---- context variables ----


def test_context_variable():
    var = contextvars.ContextVar("var", default=2)
    unset = contextvars.ContextVar("unset")
    compiled = braze.compile(lambda t: t * var.get() + unset.get(5), fullgraph=True)
    same(x * 2 + 5, compiled(x))
    token = var.set(3)
    same(x * 3 + 5, compiled(x))
    unset.set(7)
    same(x * 3 + 7, compiled(x))
    var.reset(token)
    same(x * 2 + 7, compiled(x))
    same(x * 4 + 7, contextvars.copy_context().run(lambda: (var.set(4), compiled(x))[1]))


def sets_and_resets(var, t):
    token = var.set(var.get() + 1)
    inner = var.set(t * var.get())
    a = var.get()
    var.reset(inner)
    b = var.get()
    var.reset(token)
    return a + b, var.get()


def leaves_it_set(var, t):
    var.set(5)
    var.set(var.get() + 2)
    return t * var.get()


def gives_the_tokens(var, t):
    first = var.set("a")
    return var.set("b"), t + 1, first


@contextlib.contextmanager
def holding(var, value):
    token = var.set(value)
    try:
        yield var
    finally:
        var.reset(token)


def in_a_manager(var, t):
    with holding(var, 4) as v, holding(var, 5):
        t = t * v.get()
    return t + v.get()


def raises_inside(var, t):
    try:
        with holding(var, 4):
            t = t * var.get()
            raise KeyError(1)
    except KeyError:
        return t + var.get()


@pytest.mark.parametrize("f", [sets_and_resets, leaves_it_set, in_a_manager, raises_inside], ids=lambda f: f.__name__)
def test_context_variable_that_is_set(f):
    var = contextvars.ContextVar("var", default=2)
    compiled = braze.compile(lambda t: f(var, t), fullgraph=True)
    for before in (None, 3, 3):
        for g in (compiled, lambda t: f(var, t)):
            context = contextvars.copy_context()
            if before is not None:
                context.run(var.set, before)
            got = context.run(g, x)
            if g is compiled:
                result, after = got, dict(context.items()).get(var)
        same(got, result)
        assert after == dict(context.items()).get(var)


def test_tokens_that_are_given_away():
    var = contextvars.ContextVar("var")
    compiled = braze.compile(lambda t: gives_the_tokens(var, t), fullgraph=True)
    for _ in range(2):
        second, y, first = contextvars.copy_context().run(compiled, x)
        same(y, x + 1)
        assert (first.var, first.old_value, second.old_value) == (var, contextvars.Token.MISSING, "a")
    second, _, first = compiled(x)
    var.reset(second)
    assert var.get() == "a"
    var.reset(first)
    assert var.get(None) is None


def test_break_while_a_context_variable_is_set():
    var = contextvars.ContextVar("var", default=2)
    seen = []

    def f(t):
        with holding(var, 4):
            t = t + 1
            torch._dynamo.graph_break()
            seen.append(var.get())
            t = t * var.get()
        return t * var.get()

    same(braze.compile(f)(x), (x + 1) * 8)
    assert seen == [4] and var.get() == 2


def test_messages_while_a_context_variable_is_set():
    """The handler asks for it when the message comes."""
    var, seen = contextvars.ContextVar("var", default=2), []

    class Handler(logging.Handler):
        def emit(self, record):
            seen.append((record.getMessage(), var.get()))

    log = logging.getLogger("braze_test.context")
    log.addHandler(Handler())
    log.setLevel(logging.INFO)

    def f(t):
        log.info("before")
        with holding(var, 4):
            log.info("inside")
            t = t * var.get()
        log.info("after")
        return t

    same(braze.compile(f)(x), x * 4)
    assert seen == [("before", 2), ("inside", 4), ("after", 2)]


# ---- weak references ----


def test_hooks_registered_inside():
    def fn(m, t):
        handle = m.register_forward_hook(lambda module, args, out: out + 1)
        y = m(t)
        handle.remove()
        return y - m(t)

    m = torch.nn.Tanh()
    same(fn(m, x), braze.compile(fn, fullgraph=True)(m, x))
    assert not m._forward_hooks


def test_hook_that_stays():
    def fn(m, t):
        return m.register_forward_hook(lambda module, args, out: out + 1), m(t)

    m = torch.nn.Tanh()
    handle, y = braze.compile(fn, fullgraph=True)(m, x)
    same(x.tanh() + 1, y)
    same(x.tanh() + 1, m(x))
    handle.remove()
    same(x.tanh(), m(x))


def test_weak_reference_made_inside():
    class Node:
        pass

    def fn(t):
        node = Node()
        ref = weakref.ref(node)
        return t + 1, node, ref, ref() is node

    _, node, ref, alive = braze.compile(fn, fullgraph=True)(x)
    assert alive and ref() is node
    del node
    gc.collect()
    assert ref() is None


# ---- modes of PyTorch ----


def test_default_dtype_inside():
    def fn(t):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2)
        torch.set_default_dtype(torch.float32)
        return y, torch.ones(2), t + 1

    same(fn(x), braze.compile(fn, fullgraph=True)(x))
    assert torch.get_default_dtype() == torch.float32


def test_attention_backends():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def fn(q):
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    q = torch.randn(1, 2, 4, 8)
    same(fn(q), braze.compile(fn)(q))
    assert torch.backends.cuda.flash_sdp_enabled()


def test_buffer_that_comes_to_share_the_memory_of_a_written_one():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("written", torch.zeros(3))
            self.register_buffer("read", torch.ones(3))

        def forward(self, x):
            self.written.add_(1)
            return x * self.read

    eager, m = Module(), Module()
    compiled, x = braze.compile(m), torch.ones(3)
    for call in range(4):
        if call == 2:
            for each in (eager, m):
                each.written.data = each.read.data
        assert torch.equal(compiled(x), eager(x))
        assert torch.equal(m.read, eager.read) and torch.equal(m.written, eager.written)


def test_written_argument_beside_many_others():
    """One of them lies where the call writes, in some calls."""

    def f(cache, *others):
        cache.add_(1)
        return sum(o.sum() for o in others) + cache.sum()

    compiled = braze.compile(f)
    for overlapping in (None, 0, 49, None):
        results = []
        for g in (f, compiled):
            memory, others = torch.zeros(400), [torch.full((4,), float(i)) for i in range(50)]
            if overlapping is not None:
                others[overlapping] = memory[4:12]
            results.append((g(memory[:8], *others), memory))
        same(*results)


def test_operators_see_the_default_dtype_that_was_set_inside():
    def with_a_generator(t):
        torch.set_default_dtype(torch.float64)
        y = torch.rand(3, generator=torch.Generator().manual_seed(0))
        torch.set_default_dtype(torch.float32)
        return y + t

    def in_a_graph_of_calls(t):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(3, requires_grad=True)
        torch.set_default_dtype(torch.float32)
        return y, torch.ones(2) + t

    t = torch.zeros(1)
    same(with_a_generator(t), braze.compile(with_a_generator, fullgraph=True)(t))
    for backend in ("braze", "eager"):
        same(in_a_graph_of_calls(t), braze.compile(in_a_graph_of_calls, backend=backend)(t))
