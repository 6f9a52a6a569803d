"""Sizes that vary: what stays open, how often is compiled, and that every size gives eager's results."""

import itertools

import pytest
import torch
from harness import outcome, same

import braze
from braze import _C


class Counted:
    """A compiled function that knows what was captured; every graph must have been compiled, not run eagerly."""

    def __init__(self, fn, **kw):
        self.compiled = braze.compile(fn, **kw)
        self.owner = type(self.compiled).__dict__["__call__"] if isinstance(fn, torch.nn.Module) else self.compiled
        self.events = []

    def __call__(self, *args, **kwargs):
        out, events = _C.record(self.owner, lambda: self.compiled(*args, **kwargs))
        self.events += events
        for e in events:
            assert not e["calls"] or e["status"] == "compiled", e["status"]
        return out

    @property
    def count(self):
        return len(self.events)

    @property
    def breaks(self):
        return [e["break"] for e in self.events if e["break"]]

    @property
    def guards(self):
        return [g for e in self.events for g in e["guards"]]


def sweep(fn, inputs, most, tol=1e-5, **kw):
    """`fn` on each tuple of arguments, against eager; at most so many compilations."""
    c = Counted(fn, **kw)
    for args in inputs:
        want, got = outcome(fn, args, {}), outcome(c, args, {})
        assert want[0] == got[0], f"{[getattr(a, 'shape', a) for a in args]}: {got}, expected {want}"
        if want[0] == "returned":
            same(want[1], got[1], f"{[getattr(a, 'shape', a) for a in args]}", tol)
    assert not c.breaks, c.breaks
    assert c.count <= most, f"{c.count} compilations, at most {most} expected"
    return c


def r(*shape):
    return torch.randn(shape)


SIZES = [(4, 3), (7, 3), (2, 3), (19, 3), (33, 3)]

FUNCTIONS = {
    "pointwise": lambda x: torch.relu(x * 2 + 1),
    "rows": lambda x: x.sum(1),
    "columns": lambda x: x.sum(0),
    "all": lambda x: x.mean(),
    "softmax": lambda x: torch.softmax(x, 0),
    "transpose": lambda x: x.t() + 1,
    "reshape": lambda x: (x + 1).reshape(-1),
    "view_back": lambda x: (x.reshape(-1) * 2).view(x.shape[0], x.shape[1]),
    "view_other": lambda x: (x * 2).view(x.shape[1], x.shape[0]).contiguous(),
    "shape": lambda x: x * x.shape[0],
    "len": lambda x: x + len(x),
    "size_out": lambda x: (x + 1, x.shape[0], x.numel() * 2, x.shape),
    "zeros": lambda x: torch.zeros(x.shape[0], 5) + x.sum(1, keepdim=True),
    "arange": lambda x: x + torch.arange(x.shape[0]).unsqueeze(1),
    "cat": lambda x: torch.cat([x, x * 2], 0),
    "cat_other": lambda x: torch.cat([x, torch.ones(2, 3)], 0),
    "slice": lambda x: x[1:] * 2,
    "slice_back": lambda x: x[:-1] - x[1:],
    "last": lambda x: x[-1] + 1,
    "expand": lambda x: x.unsqueeze(1).expand(-1, 4, -1) + 1,
    "mm": lambda x: x @ x.t(),
    "broadcast": lambda x: x + x[:1],
    "branch": lambda x: x * 2 if x.shape[0] > 1 else x * 3,
    "stack": lambda x: torch.stack([x, x + 1]),
    "flip": lambda x: x.flip(0),
    "cumsum": lambda x: x.cumsum(0),
    "masked": lambda x: x.masked_fill(torch.arange(x.shape[0]).unsqueeze(1) < 2, 0.0),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "pad_rows": lambda x: torch.nn.functional.pad(x, (0, 0, 1, 2)),
    "tril": lambda x: torch.tril(torch.ones(x.shape[0], x.shape[0])) @ x,
    "index": lambda x: x[torch.tensor([0, 1, 1])],
    "max": lambda x: x.max(0),
    "argmax": lambda x: x.argmax(0),
    "split": lambda x: x.split(2, 1)[0] + 1,
    "chunk_cols": lambda x: torch.cat(x.chunk(3, 1), 0),
    "repeat": lambda x: x.repeat(2, 1),
    "narrow": lambda x: x.narrow(0, 0, x.shape[0] - 1) + 1,
    "std": lambda x: x.std(0, correction=0),
    "min_of_sizes": lambda x: x[: min(x.shape[0], 5)] + max(x.shape[0], 2),
    "half": lambda x: x[: x.shape[0] // 2] + 1,
    "product": lambda x: x.view(x.numel()).sum() * (x.shape[0] * x.shape[1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_one_compilation_serves_all_sizes(name):
    sweep(FUNCTIONS[name], [(r(*s),) for s in SIZES], 1, dynamic=True)


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_second_size_opens_what_changed(name):
    c = sweep(FUNCTIONS[name], [(r(*s),) for s in SIZES], 2)
    assert c.count == 2


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_small_sizes(name):
    shapes = itertools.product((0, 1, 2, 3), (3,))
    if name in ("index", "max"):  # they need rows
        shapes = [(2, 3), (3, 3)]
    sweep(FUNCTIONS[name], [(r(*s),) for s in shapes], 4, dynamic=True)


@torch.no_grad()
def test_static_compiles_each_size():
    c = sweep(FUNCTIONS["rows"], [(r(*s),) for s in SIZES], 5, dynamic=False)
    assert c.count == 5


@torch.no_grad()
def test_size_one_is_served_by_open_code():
    c = sweep(lambda x: torch.relu(x).sum(1), [(r(4, 3),), (r(5, 3),), (r(1, 3),)], 2)
    assert c.count == 2


@torch.no_grad()
def test_two_inputs_that_share_a_size_by_accident():
    f = lambda x, y: (x * 2, y + 1)
    sweep(f, [(r(4), r(4)), (r(5), r(5)), (r(6), r(7)), (r(8), r(9)), (r(3), r(3))], 3)


@torch.no_grad()
def test_broadcast_guards():
    f = lambda x, y: x + y
    shapes = [((a, b), (c, d)) for a in (1, 2, 3) for b in (1, 2, 3) for c in (1, 2, 3) for d in (1, 2, 3)]
    sweep(f, [(r(*p), r(*q)) for p, q in shapes], 60)


@torch.no_grad()
def test_non_contiguous_inputs():
    def variants(b, t):
        yield r(b, t)
        yield r(t, b).t()
        yield r(b, 2 * t)[:, ::2]
        yield r(b, t + 3)[:, :t]
        yield r(1, t).expand(b, t)

    f = lambda x: (x * 2 + 1).sum(1) + x.reshape(-1)[0]
    sweep(f, [(v,) for b, t in [(2, 3), (4, 5), (3, 3), (6, 2)] for v in variants(b, t)], 12)


@torch.no_grad()
def test_integers_stay_open():
    f = lambda x, n: x[:, :n] * n
    sweep(f, [(r(4, 64), n) for n in (3, 5, 9, 31, 64)], 2)


@torch.no_grad()
def test_integer_results():
    f = lambda x, n: (x + 1, n * 2, n > 4, [n, x.shape[0] + n])
    sweep(f, [(r(k, 3), n) for k, n in zip((4, 5, 7, 9), (3, 5, 9, 31))], 3)


@torch.no_grad()
def test_range_over_an_open_size_unrolls_with_a_guard():
    def f(x):
        for i in range(x.shape[0]):
            x = x + i
        return x

    c = sweep(f, [(r(k, 3),) for k in (2, 3, 4, 3, 2)], 3)
    assert c.count == 3


@torch.no_grad()
def test_text_of_an_open_size_is_its_value():
    f = lambda x: (x + 1, f"{x.shape[0]} rows", str(x.shape[0]))
    sweep(f, [(r(k, 3),) for k in (2, 3, 4)], 3)


@torch.no_grad()
def test_mark_dynamic():
    c = Counted(lambda x: x * 2)
    for n in (5, 6, 7):
        x = r(n, 3)
        braze.mark_dynamic(x, 0)
        same(x * 2, c(x))
    assert c.count == 1


@torch.no_grad()
def test_mark_dynamic_of_torch_is_understood():
    c = Counted(lambda x: x * 2)
    for n in (5, 6, 7):
        x = r(n, 3)
        torch._dynamo.mark_dynamic(x, 0)
        same(x * 2, c(x))
    assert c.count == 1


@torch.no_grad()
def test_mark_dynamic_that_cannot_be_kept():
    def f(x):
        y = x * 2
        return y + torch.ones(5, 3)

    x = r(5, 3)
    braze.mark_dynamic(x, 0)
    with pytest.raises(ValueError, match=r"(?s)dimension 0 of L\['x'\].*must be 5.*torch.ones\(5, 3\)"):
        braze.compile(f)(x)


@torch.no_grad()
def test_views_by_sizes_that_cannot_be_compared_stay_views():
    for f in (lambda x: x.view(-1, 6), lambda x: x.reshape(-1, 2)[: x.shape[0]], lambda x: x.reshape(2, -1)):
        c = Counted(f, dynamic=True)
        for n in (4, 6, 10):
            x = r(n, 6)
            y = x.clone()
            f(x).mul_(2), c(y).mul_(2)
            same(x, y, f"{n}")


@torch.no_grad()
def test_an_integer_that_became_fixed_is_still_a_number():
    f = lambda x, n: x * (n / 2) - n + (x.shape[0] / 2) * x - x.shape[0]
    sweep(f, [(r(k, 3), k + 1) for k in (3, 5, 8)], 3, dynamic=True)


@torch.no_grad()
def test_maybe_mark_dynamic():
    f = lambda x: (x * 2, x + torch.ones(5, 3)) if x.shape[0] == 5 else x * 2
    c = Counted(f)
    for n in (5, 6, 7):
        x = r(n, 3)
        (braze if n == 6 else torch._dynamo).maybe_mark_dynamic(x, 0)
        same(f(x), c(x))
    assert c.count == 2
    x = r(6, 3)
    braze.maybe_mark_dynamic(x, [0, 1])
    braze.mark_static(x, 0)
    assert x._dynamo_weak_dynamic_indices == {1} and x._dynamo_static_indices == {0}


@torch.no_grad()
def test_compilations_are_counted():
    c = braze.compile(lambda x: x.relu() + x.shape[0])
    for n in (3, 4, 5, 6):
        c(r(n, 2))
    assert braze.explain(c, r(9, 2)).compilations == 2
    assert braze.explain(c.__wrapped__, r(9, 2)).compilations == 1


@torch.no_grad()
def test_mark_dynamic_with_a_range():
    f = lambda x: x * 2 if x.shape[0] <= 100 else x
    x = r(5, 3)
    braze.mark_dynamic(x, 0, min=2, max=64)
    c = Counted(f)
    same(x * 2, c(x))
    for n in (2, 64):
        same(r(n, 3).shape, c(r(n, 3)).shape)
    assert c.count == 1
    for n in (1, 65, 101):
        y = r(n, 3)
        same(f(y), c(y))
    y = r(5, 3)
    braze.mark_dynamic(y, 0, min=2, max=200)
    with pytest.raises(ValueError, match="from 2 to 100"):
        braze.compile(f)(y)


@torch.no_grad()
def test_mark_static():
    c = Counted(lambda x: x * 2)
    for n in (4, 5, 6):
        x = r(n, 3)
        braze.mark_static(x, 0)
        same(x * 2, c(x))
    assert c.count == 3


@torch.no_grad()
def test_module_attribute_that_varies():
    class M(torch.nn.Module):
        n = 0

        def forward(self, x):
            return x[: self.n] * self.n

    m = M()
    c = Counted(m)
    for n in (3, 5, 7, 9):
        m.n = n
        x = r(12, 3)
        same(x[:n] * n, c(x))
    assert c.count <= 2


@torch.no_grad()
def test_shapes_that_no_longer_fit_raise_as_eager():
    f = lambda x, y: x @ y
    c = Counted(f)
    for n in (4, 5, 6):
        same(torch.ones(3, n) @ torch.ones(n, 2), c(torch.ones(3, n), torch.ones(n, 2)))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        c(torch.ones(3, 7), torch.ones(8, 2))


@torch.no_grad()
def test_break_with_open_locals():
    def f(x):
        n = x.shape[0]
        y = x * n
        braze.graph_break()
        return y + n

    c = Counted(f)
    for k in (4, 5, 6, 7):
        x = r(k, 3)
        same(x * k + k, c(x))
    assert c.count <= 4 + 2


@torch.no_grad()
def test_backends_get_open_sizes():
    seen = []

    def backend(gm, inputs):
        seen.append(inputs)
        return gm.forward

    c = braze.compile(lambda x: x.reshape(-1)[: x.shape[0]] * x.shape[0], backend=backend, dynamic=True)
    for k in (4, 5, 9):
        x = r(k, 3)
        same(x.reshape(-1)[:k] * k, c(x))
    assert len(seen) == 1


def ids(b, t):
    return torch.randint(1, 100, (b, t))


def pairs():
    all_pairs = [(b, t) for b in (2, 3, 5, 6, 8) for t in (4, 7, 12, 16, 17, 23, 31, 48)]
    order = torch.randperm(len(all_pairs), generator=torch.Generator().manual_seed(1)).tolist()
    first = [(2, 16), (3, 12)]  # both sizes change between the first two calls
    return first + [all_pairs[i] for i in order if all_pairs[i] not in first]


@pytest.mark.parametrize("name", ["bert", "bert_masked", "gpt2", "llama", "t5_encoder"])
@pytest.mark.parametrize("dynamic", [None, True])
@torch.no_grad()
def test_forty_sizes_of_a_transformer(name, dynamic):
    from models_test import small

    model, _, kwargs, read = small(name)
    model.eval()
    c = Counted(model, dynamic=dynamic)
    for b, t in pairs():
        x, kw = ids(b, t), {}
        if "attention_mask" in kwargs:
            mask = torch.ones(b, t, dtype=torch.long)
            mask[0, t // 2 :] = 0
            kw = {"attention_mask": mask}
        for got, want in zip(read(c(x, **kw)), read(model(x, **kw)), strict=True):
            same(want, got, f"{b}x{t}", 1e-5)
    assert not c.breaks and c.count <= (1 if dynamic else 2), c.count


@torch.no_grad()
def test_torch_compile_hands_over_open_sizes():
    f = lambda x: torch.relu(x.reshape(-1, 3) * x.shape[0]).sum(1)
    compiled = torch.compile(f, backend="braze", dynamic=True)
    for n in (4, 5, 9):
        x = r(n, 6)
        torch.testing.assert_close(compiled(x), f(x), rtol=1e-5, atol=1e-5)


def test_an_open_stride_may_make_channels_last():
    """Of a tensor with a dimension of size 1 that decides on the strides of results, and so on what comes after."""

    def fn(a):
        return torch.minimum(a, a).roll(-2, -1)

    graphs = []

    def count(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled, counted = braze.compile(fn, fullgraph=True), braze.compile(fn, backend=count, fullgraph=True)
    plain = torch.randn(1, 16, 1, 16)
    wide = torch.randn(1, 16, 1, 64).transpose(1, 3).contiguous().transpose(1, 3)
    for a in (
        plain,
        plain.transpose(0, -1).contiguous().transpose(0, -1),
        wide[..., ::2][..., :16],
        wide[..., ::3][..., :16],
    ):
        for f in (compiled, counted):
            assert f(a).stride() == fn(a).stride()
            assert torch.equal(f(a), fn(a))
    assert len(graphs) <= 3


@pytest.mark.parametrize("shape", [(2, 1, 1), (2, 1, 3), (1, 1, 4)])
@torch.no_grad()
def test_open_sizes_of_an_index_have_eager_strides(shape):
    """Of a transposed tensor some of whose dimensions are 1; the calls have more and fewer of these."""

    def fn(a, i):
        t = a.transpose(0, -1)
        return t[:, i], t[i % t.shape[0]], t[i % t.shape[0], :, i % t.shape[2]]

    compiled = braze.compile(fn, dynamic=True, fullgraph=True)
    for n, index in ((shape[0], 8), (shape[0], 1), (5, 3), (1, 4)):
        a, i = torch.randn(n, *shape[1:]), torch.arange(index) % shape[1]
        for want, got in zip(fn(a, i), compiled(a, i)):
            assert torch.equal(want, got) and [(s, n) for s, n in zip(want.stride(), want.shape) if n != 1] == [
                (s, n) for s, n in zip(got.stride(), got.shape) if n != 1
            ]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(),
        lambda x: (x * x).mean(),
        lambda x: x.amax() - x.amin(),
        lambda x: (x > 0.5).any() | (x < 2).all(),
        lambda x: (x > 0).sum(),
        lambda x: torch.where(x > 0.00099987654, 1.5, 1.0).to(x.dtype).prod(),
        lambda x: x[: x.shape[0] // 4 * 4].view(-1, 4).sum(0),
        lambda x: x.bfloat16().sum(),
    ],
)
def test_reductions_of_everything_over_an_open_length(fn):
    """They are made in pieces, whose number is fixed: also of a length below it, and of what is left over."""
    compiled = braze.compile(fn, dynamic=True)
    for n in (4, 5, 31, 32, 33, 63, 64, 65, 1000, 4097, 100_003):
        x = torch.linspace(-0.001, 0.001, n)
        got = compiled(x)
        same(fn(x.double()).to(got.dtype), got, tol=2e-2 if got.dtype == torch.bfloat16 else 1e-5)


PARTS_OF_ONE = {
    "chunk": lambda x: x.chunk(2, -1)[-1] + x,
    "every second": lambda x: x[:, 1::2] * x,
    "upper half": lambda x: torch.where(x > 0, x[:, (x.shape[1] + 1) // 2 :], x),
    "copy_": lambda x: torch.zeros_like(x).copy_(x.chunk(2, 0)[-1]),
    "squeeze": lambda x: x[:, x.shape[1] // 2 :].squeeze(-1).sum(-1),
    "view": lambda x: x.reshape(-1)[: x.shape[0] * x.shape[1] - 3].view(1, -1) + x,
}


@pytest.mark.parametrize("name", PARTS_OF_ONE)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_part_that_turns_out_to_be_one_is_broadcast(name, dynamic):
    """Its size is computed from open sizes: it is 1 for some of them only."""
    fn = PARTS_OF_ONE[name]
    compiled = braze.compile(fn, dynamic=dynamic)
    ran = 0
    for shape in ((3, 2), (2, 2), (3, 3), (2, 3), (4, 4), (3, 1), (3, 5), (4, 2), (2, 3)):
        x = torch.randn(shape)
        want, got = outcome(fn, (x,), {}), outcome(compiled, (x,), {})
        assert got[0] == want[0], (shape, want, got)
        if want[0] == "returned":
            torch.testing.assert_close(got[1], want[1])
            ran += 1
    assert ran > 2
