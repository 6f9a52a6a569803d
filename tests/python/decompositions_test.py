"""What docs/operators.md calls a kernel or decomposed: no extern call is left, and the results are eager's in float32, float64 and
bfloat16 (half types: computed in float, rounded at the end)."""

import pytest
import torch
import torch.nn.functional as F
from op_samples import check

import braze

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def rand(*sizes):
    return lambda dtype: torch.linspace(-2, 3, max(1, torch.Size(sizes).numel())).sin().mul(2).reshape(sizes).to(dtype)


def unit(*sizes):
    return lambda dtype: torch.linspace(0.05, 0.95, torch.Size(sizes).numel()).reshape(sizes).to(dtype)


def ints(high, *sizes):
    return lambda dtype: (torch.arange(torch.Size(sizes).numel()) * 7 % high).reshape(sizes)


MEAN, SUM, NONE = 1, 2, 0
TRUE3 = [True, True, True]
x4, idx = rand(2, 4, 6, 6), ints(5, 2, 3)

# name: function, arguments by dtype
CASES = {
    "softmax_backward": (lambda g, y: aten._softmax_backward_data(g, y.softmax(-1), -1, y.dtype), rand(3, 7), rand(3, 7)),
    "log_softmax_backward": (lambda g, y: aten._log_softmax_backward_data(g, y.log_softmax(1), 1, y.dtype), rand(3, 7, 2), rand(3, 7, 2)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), rand(4, 6), rand(6), rand(6)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), x4, rand(4), rand(4)),
    "group_norm_backward": (
        lambda g, x, w: aten.native_group_norm_backward(g, x, *aten.native_group_norm(x, w, None, 2, 4, 36, 2, 1e-5)[1:], w, 2, 4, 36, 2, TRUE3),
        x4, rand(2, 4, 6, 6), rand(4)),
    "batch_norm_eval": (lambda x, m, v: F.batch_norm(x, m, v), x4, rand(4), unit(4)),
    "mse": (F.mse_loss, rand(5, 3), unit(5, 3)),
    "l1": (F.l1_loss, rand(5, 3), unit(5, 3)),
    "smooth_l1": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.7), rand(5, 3), unit(5, 3)),
    "smooth_l1_backward": (lambda g, x, y: aten.smooth_l1_loss_backward(g, x, y, MEAN, 0.7), rand(), rand(5, 3), unit(5, 3)),
    "huber": (lambda x, y: F.huber_loss(x, y, delta=0.7), rand(5, 3), unit(5, 3)),
    "huber_backward": (lambda g, x, y: aten.huber_loss_backward(g, x, y, NONE, 0.7), rand(5, 3), rand(5, 3), unit(5, 3)),
    "bce": (F.binary_cross_entropy, unit(5, 3), unit(5, 3)),
    "bce_backward": (lambda g, x, y: aten.binary_cross_entropy_backward(g, x, y, None, MEAN), rand(), unit(5, 3), unit(5, 3)),
    "bce_logits": (lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w), rand(5, 3), unit(5, 3), unit(3)),
    "soft_margin_backward": (lambda g, x, y: aten.soft_margin_loss_backward(g, x, y.sign(), MEAN), rand(), rand(5, 3), rand(5, 3)),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), rand(5, 3), unit(5, 3)),
    "cross_entropy": (F.cross_entropy, rand(6, 5), ints(5, 6)),
    "cross_entropy_none": (lambda x, t: F.cross_entropy(x, t, reduction="none", ignore_index=2), rand(6, 5), ints(5, 6)),
    "cross_entropy_2d": (lambda x, t, w: F.cross_entropy(x, t, w), rand(2, 5, 3, 4), ints(5, 2, 3, 4), unit(5)),
    "nll2d_backward": (lambda g, x, t, n: aten.nll_loss2d_backward(g, x, t, None, MEAN, -100, n), rand(), rand(2, 5, 3, 4), ints(5, 2, 3, 4), lambda dtype: torch.tensor(24.0, dtype=dtype)),
    "glu_backward": (lambda g, x: aten.glu_backward(g, x, 1), rand(3, 4), rand(3, 8)),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), x4),
    "adaptive_avg_pool_backward": (lambda g, x: aten._adaptive_avg_pool2d_backward(g, x), rand(2, 4, 3, 2), x4),
    "adaptive_avg_pool_backward_1": (lambda g, x: aten._adaptive_avg_pool2d_backward(g, x), rand(2, 4, 1, 1), x4),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), rand(2, 3, 8, 7)),
    "avg_pool_without_padding": (lambda x: F.avg_pool2d(x, 2, count_include_pad=False), x4),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), rand(2, 3, 9, 8)),
    "max_pool_dilated": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), x4),
    "reflection_pad": (lambda x: F.pad(x, (2, 1, 3, 0), mode="reflect"), x4),
    "replication_pad": (lambda x: F.pad(x, (2, 1, 3, 0), mode="replicate"), x4),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), x4),
    "nearest_odd": (lambda x: F.interpolate(x, size=(7, 11)), x4),
    "nearest_exact": (lambda x: F.interpolate(x, size=(7, 11), mode="nearest-exact"), x4),
    "bilinear": (lambda x: F.interpolate(x, size=(7, 11), mode="bilinear"), x4),
    "bilinear_corners": (lambda x: F.interpolate(x, size=(7, 11), mode="bilinear", align_corners=True), x4),
    "linear": (lambda x: F.interpolate(x, scale_factor=2.5, mode="linear"), rand(2, 3, 8)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), x4),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 3), x4),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), x4),
    "trace": (torch.trace, unit(4, 5)),
    "count_nonzero": (lambda x: torch.count_nonzero(x.relu(), 1), rand(4, 5)),
    "masked_assignment": (lambda x: x.index_put((x > 0,), x.new_zeros(())), rand(4, 5)),
    "index_put": (lambda x, i, v: x.index_put((i, i.flip(0)), v), rand(5, 5, 3), ints(5, 5), rand(5, 3)),
    "index_put_last": (lambda x, i, v: aten.index_put(x, [None, i], v), rand(3, 5), ints(5, 5), rand(3, 5)),
    "index_fill": (lambda x, i: x.index_fill(1, i, 2.5), rand(3, 5), ints(5, 2)),
    "index_copy": (lambda x, i, v: x.index_copy(1, i, v), rand(3, 5), ints(5, 2), rand(3, 2)),
    "scatter": (lambda x, i, v: x.scatter(1, i, v), rand(2, 5), idx, rand(2, 3)),
    "scatter_value": (lambda x, i: x.scatter(0, i, 7.5), rand(5, 3), idx),
    "take": (torch.take, rand(4, 5), ints(20, 3, 2)),
    "linspace": (lambda x: x + torch.linspace(-1, 2, 7, dtype=x.dtype if x.dtype != torch.bfloat16 else torch.float32), rand(7)),
    "adaptive_avg_pool_uneven": (lambda x: F.adaptive_avg_pool2d(x, (4, 5)), x4),
    "adaptive_avg_pool_larger": (lambda x: F.adaptive_avg_pool2d(x, (7, 9)), x4),
    "adaptive_avg_pool1d_uneven": (lambda x: F.adaptive_avg_pool1d(x, 5), rand(2, 3, 12)),
    "adaptive_avg_pool3d_uneven": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), rand(2, 3, 4, 5, 3)),
    "adaptive_max_pool": (lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), x4),
    "adaptive_max_pool_uneven": (lambda x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True), x4),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 2), return_indices=True), rand(2, 3, 4, 5, 3)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True), rand(2, 3, 5, 4, 6)),
    "max_pool3d_dilated": (lambda x: F.max_pool3d(x, 2, 2, dilation=2, ceil_mode=True), rand(2, 3, 6, 7, 6)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True), rand(2, 3, 8, 7, 6)),
    "avg_pool3d_divided": (lambda x: F.avg_pool3d(x, 2, count_include_pad=False, divisor_override=3), rand(2, 3, 4, 4, 6)),
    "trilinear": (lambda x: F.interpolate(x, size=(5, 3, 7), mode="trilinear"), rand(2, 3, 3, 4, 5)),
    "trilinear_corners": (lambda x: F.interpolate(x, scale_factor=1.7, mode="trilinear", align_corners=True), rand(2, 3, 3, 4, 5)),
    "bicubic": (lambda x: F.interpolate(x, size=(7, 11), mode="bicubic"), x4),
    "bicubic_smaller": (lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic", align_corners=True), rand(2, 3, 9, 8)),
    "unfold_windows": (lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=2), x4),
    "unfold_columns": (lambda x: F.unfold(x.permute(0, 1, 3, 2), 2), x4),
    "max_unpool": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), x4),
    "max_unpool3d": (lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2), rand(2, 3, 4, 4, 6)),
    "diagonal_scatter": (lambda x, d: x.diagonal_scatter(d, -1, 0, 2), rand(4, 3, 5), rand(3, 3)),
    "diagonal_backward": (lambda g: aten.diagonal_backward(g, [4, 3, 5], 1, 0, 2), rand(3, 4)),
    "diag_embed": (lambda x: torch.diag_embed(x, 1, 0, 2) + torch.diag_embed(x, -1, 0, 2), rand(2, 5)),
    "diag_embed_last": (lambda x: torch.diag_embed(x, -2), rand(2, 5)),
    "rot90": (lambda x: [torch.rot90(x, k, (0, 2)) for k in range(-1, 5)], rand(2, 3, 4)),
    "put": (lambda x, i, v: x.put(i, v), rand(4, 5), ints(20, 3, 2), rand(3, 2)),
    "masked_index": (lambda x, i: aten._unsafe_masked_index(x, i > 2, [None, i - 3], 2.0), rand(3, 5), ints(5, 4)),
    "isin": (lambda x, t: (torch.isin(x, t), torch.isin(x, t, invert=True), torch.isin(x, 0.5)), rand(4, 5), lambda dtype: rand(4, 5)(dtype)[1]),
    "bucketize": (lambda x, b: (torch.bucketize(x, b), torch.bucketize(x, b, right=True, out_int32=True)), rand(40), lambda dtype: torch.tensor([-1.5, -0.5, 0.0, 0.0, 0.25, 1.0, 1.5], dtype=dtype)),
    "searchsorted": (lambda x, b: (torch.searchsorted(b, x, side="right"), torch.searchsorted(b, 0.1)), rand(5, 8), unit(300)),
    "multi_margin": (lambda x, t, w: F.multi_margin_loss(x, t, p=2, margin=0.7, weight=w, reduction="none"), rand(6, 5), ints(5, 6), unit(5)),
    "multi_margin_mean": (lambda x, t: F.multi_margin_loss(x, t), rand(6, 5), ints(5, 6)),
    "renorm": (lambda x: (x.renorm(2, 0, 1.5), x.renorm(1, -1, 0.5)), rand(3, 4, 5)),
    "dist": (lambda x, y: (torch.dist(x, y), torch.dist(x, y, 3), torch.dist(x, y, float("inf"))), rand(3, 4), unit(3, 4)),
    "weight_norm": (lambda v, g: torch._weight_norm(v, g, 0), rand(4, 3, 2), unit(4, 1, 1)),
    "distances": (lambda x, y: [torch.cdist(x, y, p) for p in (0, 1, 3, float("inf"))], rand(2, 30, 3), unit(2, 26, 3)),
    "few_distances": (lambda x, y: (torch.cdist(x, y), torch.cdist(x[0], y, compute_mode="donot_use_mm_for_euclid_dist")), rand(2, 5, 3), unit(2, 7, 3)),
    "block_diag": (lambda x, y: torch.block_diag(x, y[0], y, y[0, 0]), rand(3, 4), unit(2, 5)),
    "as_strided_copy": (lambda x: (aten.as_strided_copy(x * 2, [3, 2], [2, 3], 1), aten._reshape_alias_copy(x, [4, 3], [3, 1])), rand(3, 4)),
    "add_relu": (lambda x, y: torch._add_relu(x, y, alpha=2), rand(3, 4), unit(3, 4)),
    "spaced": (lambda x: (torch.linspace(x[0], x[1], 7), torch.linspace(x[1], 3, 6), torch.logspace(-1, x[1], 6), torch.linspace(-1.5, x[0], 1)), rand(2)),
    "cross": (lambda x, y: torch.linalg.cross(x, y, dim=1), rand(4, 3, 2), unit(1, 3, 2)),
    "ldexp": (lambda x, i: torch.ldexp(x, i), rand(3, 5), lambda dtype: torch.arange(-7, 8).reshape(3, 5)),
    "mvlgamma": (lambda x: torch.mvlgamma(x + 3, 4), unit(7)),
    "foreach_norm": (lambda x, y: [*torch._foreach_norm([x, y]), *torch._foreach_norm([x, y], 1), *torch._foreach_max([x, y])], rand(4, 5), rand(7)),
    "norm_of_dtype": (lambda x: (x.norm(2, dtype=torch.float64), x.norm(1, 1, True, dtype=torch.float64)), rand(3, 4)) ,
    "xlog1py": (lambda x, y: (torch.special.xlog1py(x, y), torch.special.xlog1py(2, y), torch.xlogy(2, y)), rand(9), unit(9)),
    "reversed_bits": (lambda x, i: (5 & i, 5 | i, 5 ^ i, 5 << i, 500 >> i), rand(9), ints(6, 9)),
}  # fmt: skip
# Sums over places given by data; in float types of 32 bits and more, since eager's order of rounding in half types is its own.
SUMS = {
    "histc": (lambda x: (torch.histc(x, 7, -1.5, 2), torch.histc(x, 3, 0, 0.5), torch.histc(x[:0], 4, 0, 1)), rand(4, 30)),
    "index_add": (lambda x, i, v: x.index_add(1, i, v, alpha=0.5), rand(3, 5), ints(3, 4), rand(3, 4)),
    "index_add_rows": (lambda x, i, v: x.index_add(0, i, v), rand(5, 33), ints(3, 9), rand(9, 33)),
    "scatter_add": (lambda x, i, v: x.scatter_add(1, i, v), rand(2, 5), ints(3, 2, 9), rand(2, 9)),
    "scatter_add_rows": (lambda x, i, v: x.scatter_add(0, i, v), rand(5, 17), ints(3, 9, 17), rand(9, 17)),
    "scatter_reduce": (lambda x, i, v: x.scatter_reduce(0, i, v, "sum"), rand(5), ints(3, 40), rand(40)),
    "index_put_accumulate": (lambda x, i, v: x.index_put((i,), v, accumulate=True), rand(5, 3), ints(3, 40), rand(40, 3)),
    "index_put_accumulate_all": (lambda x, i, v: x.index_put((i, i), v, accumulate=True), rand(5, 5), ints(3, 40), rand(40)),
    "embedding_backward": (lambda g, i: aten.embedding_dense_backward(g, i, 9, 2, False), rand(4, 6, 20), ints(9, 4, 6)),
    "unfold_backward": (lambda g: aten.unfold_backward(g, [3, 8], 1, 4, 2), rand(3, 3, 4)),
    "max_pool_backward": (
        lambda g, x: aten.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]),
        rand(2, 4, 3, 3), x4),
    "avg_pool_backward": (lambda g, x: aten.avg_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1], False, False, None), rand(2, 4, 3, 3), x4),
    "reflection_pad_backward": (lambda g, x: aten.reflection_pad2d_backward(g, x, [2, 1, 3, 0]), rand(2, 4, 9, 9), x4),
    "replication_pad_backward": (lambda g, x: aten.replication_pad1d_backward(g, x, [2, 1]), rand(2, 4, 9), rand(2, 4, 6)),
    "nearest_backward": (lambda g: aten.upsample_nearest2d_backward(g, [7, 11], [2, 4, 6, 6]), rand(2, 4, 7, 11)),
    "nearest1d_backward": (lambda g: aten.upsample_nearest1d_backward(g, [11], [2, 4, 6]), rand(2, 4, 11)),
    "nearest3d_backward": (lambda g: aten.upsample_nearest3d_backward(g, [4, 3, 5], [2, 3, 2, 3, 3]), rand(2, 3, 4, 3, 5)),
    "nearest_exact_backward": (lambda g: aten._upsample_nearest_exact2d_backward(g, [7, 11], [2, 4, 6, 6]), rand(2, 4, 7, 11)),
    "bicubic_backward": (lambda g: aten.upsample_bicubic2d_backward(g, [7, 11], [2, 4, 6, 6], False), rand(2, 4, 7, 11)),
    "adaptive_max_pool_backward": (lambda g, x: aten.adaptive_max_pool2d_backward(g, x, F.adaptive_max_pool2d(x, (4, 5), return_indices=True)[1]), rand(2, 4, 4, 5), x4),
    "max_pool3d_backward": (
        lambda g, x: aten.max_pool3d_with_indices_backward(g, x, [2, 2, 2], [1, 1, 1], [1, 1, 1], [1, 1, 1], False, F.max_pool3d(x, 2, 1, 1, return_indices=True)[1]),
        rand(2, 3, 6, 5, 7), rand(2, 3, 5, 4, 6)),
    "avg_pool3d_backward": (lambda g, x: aten.avg_pool3d_backward(g, x, [3, 3, 3], [2, 2, 2], [1, 1, 1], False, False, None), rand(2, 3, 3, 2, 3), rand(2, 3, 5, 4, 6)),
    "affine_grid": (lambda x: (F.affine_grid(x, [2, 1, 3, 4], False), F.affine_grid(x, [2, 1, 1, 5], True)), rand(2, 2, 3)),
    "affine_grid3d": (lambda x: F.affine_grid(x, [2, 1, 2, 3, 4], False), rand(2, 3, 4)),
    "dot": (lambda x, y: (torch.dot(x, y), torch.vdot(x * 2, y)), rand(1000), unit(1000)),
    "masked_put": (lambda x, i, v: aten._unsafe_masked_index_put_accumulate(x, i > 2, [None, i - 3], v), rand(3, 5), ints(5, 4), rand(3, 4)),
    "distances_backward": (lambda g, x, y: [aten._cdist_backward(g, x, y, p, torch.cdist(x, y, p)) for p in (1.0, 2.0)], rand(2, 5, 7), rand(2, 5, 33), unit(2, 7, 33)),
    "powsum": (lambda x, y: [*torch._foreach_powsum([x, y], 1), *torch._foreach_powsum([x, y], 2)], rand(4, 5), rand(7)),
    "multi_margin_backward": (lambda g, x, t, w: aten.multi_margin_loss_backward(g, x, t, 2, 0.7, w, MEAN), rand(), rand(6, 5), ints(5, 6), unit(5)),
    "weight_norm_backward": (lambda g, v, s: aten._weight_norm_interface_backward(g.flip(2), v, s, v.square().sum((1, 2), True).sqrt(), 0), rand(4, 3, 2), rand(4, 3, 2), unit(4, 1, 1)),
    "bilinear_backward": (lambda g: aten.upsample_bilinear2d_backward(g, [7, 11], [2, 4, 6, 6], False), rand(2, 4, 7, 11)),
}  # fmt: skip
NO_HALVES = {
    "distances",
    "few_distances",
    "affine_grid",
    "affine_grid3d",
    "add_relu",
    "avg_pool3d",
    "avg_pool3d_divided",
    "multi_margin",
    "multi_margin_mean",
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CASES, *SUMS])
def test_fused(name, dtype):
    fn, *args = {**CASES, **SUMS}[name]
    if name in SUMS and dtype == torch.bfloat16:
        pytest.skip("eager's order of rounding is its own")
    explained = check(fn, tuple(a(dtype) for a in args), {})
    if explained is None and dtype == torch.bfloat16 and (name in NO_HALVES or torch.__version__ < "2.13"):
        pytest.skip("eager lacks the kernel")
    assert explained is not None, "eager raises"
    assert explained.graph_count == 1 and explained.graph_break_count == 0, explained
    assert explained.extern_count == 0 and explained.kernel_count > 0, explained.plans


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bins, low, high", [(1, 0, 1), (10, 0, 1), (7, -0.3, 0.1), (100, -3, 3), (3, 1e-3, 1e6)])
def test_counts_at_the_edges_of_parts(dtype, bins, low, high):
    """Elements on the edges, beside them, outside and not numbers are counted where eager counts them."""
    edges = torch.linspace(low, high, bins + 1, dtype=dtype)
    away = [torch.nextafter(edges, torch.full_like(edges, to)) for to in (-torch.inf, torch.inf)]
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0], dtype=dtype)
    x = torch.cat([edges, *away, odd, torch.randn(3000, dtype=dtype, generator=torch.Generator().manual_seed(bins))])
    f = lambda x: torch.histc(x, bins, low, high)
    explained = braze.explain(f, x)
    assert torch.equal(explained.output, f(x)) and explained.extern_count == 0, explained.plans
    assert torch.equal(braze.compile(f)(x.view(-1, 1).expand(-1, 2)), f(x.view(-1, 1).expand(-1, 2)))


def test_counts_that_eager_makes():
    """Edges that are the data's, integers, and what eager refuses."""
    x = torch.linspace(-2, 3, 50)
    assert torch.equal(braze.compile(lambda x: torch.histc(x, 5))(x), torch.histc(x, 5))
    for f in (
        lambda x: torch.histc(x, 5, 2, 1),
        lambda x: torch.histc(x, 0, 0, 1),
        lambda x: torch.histc(x.long(), 5, 0, 9),
    ):
        with pytest.raises(RuntimeError) as want:
            f(x)
        with pytest.raises(RuntimeError) as got:
            braze.compile(f)(x)
        assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_copies_of_views(dtype):
    def f(x):
        return [
            aten.view_copy(x, [6, 4]), aten.permute_copy(x, [2, 0, 1]), aten.expand_copy(x[:1], [2, 3, 4]), aten.t_copy(x[0]), aten.alias_copy(x),
            aten.transpose_copy(x, 0, 2), aten.squeeze_copy(x[:1]), aten.unsqueeze_copy(x, 1), aten.select_copy(x, 1, -1), aten.slice_copy(x, 2, 1, 3),
            *aten.split_copy(x, 2, 2), *aten.split_with_sizes_copy(x, [1, 2], 1), *aten.unbind_copy(x, 1), aten.unfold_copy(x, 2, 2, 1),
            aten.diagonal_copy(x, 0, 1, 2), torch.narrow_copy(x, 2, -3, 2), aten.detach_copy(x), aten.lift_fresh_copy(x),
        ]  # fmt: skip

    explained = check(f, (torch.arange(24).reshape(2, 3, 4).remainder(7).to(dtype),), {})
    assert explained.graph_count == 1 and explained.extern_count == 0, explained.plans


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("name", [n for n in dir(torch.special) if "_polynomial_" in n])
def test_polynomials(name, n):
    # Of NaN eager returns a variable that nothing was written to.
    x = torch.tensor([*torch.linspace(-2, 3, 31), 0.0, -0.0, 1.0, -1.0, float("inf")])
    f = getattr(torch.special, name)
    for t in (x, x.double(), torch.arange(-3, 4)):
        explained = check(lambda x: f(x, n), (t,), {})
        assert explained.graph_count == 1 and explained.extern_count == 0, explained.plans


WINDOWS = ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_signals(name, dtype):
    window = getattr(torch, name)

    def f():
        return [window(n, periodic=p, dtype=dtype) for n in (1, 2, 9, 64) for p in (True, False)]

    explained = braze.explain(f)
    for want, got in zip(f(), explained.output, strict=True):
        torch.testing.assert_close(got, want)
    assert explained.graph_count == 1 and explained.extern_count == 0, explained.plans


def test_normal_numbers_around_tensors():
    mean, deviation = torch.linspace(-2, 2, 24).reshape(4, 6), torch.linspace(0.1, 2, 6)
    f = lambda m, d: (torch.normal(m, 0.5), torch.normal(m, d), torch.normal(2.0, d))
    assert check(f, (mean, deviation), {}).graph_count == 1  # eager's numbers, where they are asked for
    explained = braze.explain(lambda m: torch.normal(m, 0.5), mean.repeat(64, 1))
    assert explained.graph_count == 1 and "normal" not in explained.plans[0], explained.plans
    assert (explained.output - mean.repeat(64, 1)).std() == pytest.approx(0.5, abs=0.05)
    with pytest.raises(RuntimeError, match="std >= 0"):
        braze.compile(f)(mean, -deviation)


def test_places_outside_raise():
    cases = [
        (lambda x, i: F.max_unpool2d(x, i, 2), torch.ones(1, 1, 2, 2), torch.full((1, 1, 2, 2), 16)),
        (lambda x, i: x.put(i, x[0, 0, 0]), torch.ones(1, 1, 2, 2), torch.tensor([1, 4])),
        (lambda x, i: F.multi_margin_loss(x[0, 0], i), torch.ones(1, 1, 2, 2), torch.tensor([1, 2])),
    ]
    for f, *args in cases:
        with pytest.raises(Exception) as eager:
            f(*args)
        with pytest.raises(type(eager.value)):
            braze.compile(f)(*args)


def test_training_batch_norm_is_one_graph():
    def f(x, w, b, mean, var):
        return F.batch_norm(x, mean, var, w, b, training=True, momentum=0.2)

    args = tuple(a(torch.float32) for a in (x4, rand(4), rand(4), rand(4), unit(4)))
    explained = check(f, args, {})
    assert explained.graph_count == 1 and explained.graph_break_count == 0 and explained.extern_count == 0, explained


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "pow"])
def test_foreach_binary(name):
    op = getattr(torch, f"_foreach_{name}")
    lists = [[a(torch.float32) for a in (unit(3, 4), unit(7), unit(2, 2, 2))] for _ in range(2)]
    for f, args in ((lambda x, y: op(x, y), lists), (lambda x: op(x, 1.5), lists[:1])):
        explained = check(f, tuple(args), {})
        assert explained.graph_count == 1 and explained.extern_count == 0, explained.plans


def test_foreach_updates():
    def f(params, grads, squares):
        torch._foreach_mul_(squares, 0.9)
        torch._foreach_addcmul_(squares, grads, grads, value=0.1)
        torch._foreach_lerp_(grads, params, 0.01)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, 1e-8)
        torch._foreach_addcdiv_(params, grads, denominators, value=-0.01)

    args = tuple([a(torch.float32) for a in (unit(3, 4), unit(7), unit(2, 2, 2))] for _ in range(3))
    explained = check(f, args, {})
    assert explained.graph_count == 1 and explained.extern_count == 0, explained.plans


EMPTY = {
    "index": lambda x: x[torch.tensor([0, 1])],
    "index_select": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.zeros(1, 3, dtype=torch.int64)),
    "index_put": lambda x: x.index_put((torch.tensor([0]),), torch.ones(3)),
    "index_add": lambda x: x.index_add(0, torch.tensor([0]), torch.ones(1, 3)),
    "amax": lambda x: x.amax(0),
    "max": lambda x: x.max(0).values,
    "amax_of_the_rest": lambda x: x.amax(1),
}


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements(name):
    check(EMPTY[name], (torch.empty(0, 3),), {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bool, torch.int64], ids=str)
@pytest.mark.parametrize("dims", [[], [0], [0, 1], [-1]])
@pytest.mark.parametrize("keep", [False, True])
def test_truth_along_dimensions(dtype, dims, keep):
    """What an empty list means is the version's choice."""
    for fn in (torch.any, torch.all):
        for x in (torch.tensor([[0, 1, 2], [1, 1, 1]]).to(dtype), torch.ones(1, 1).to(dtype)):
            want, got = fn(x, dim=dims, keepdim=keep), braze.compile(lambda x: fn(x, dim=dims, keepdim=keep))(x)
            assert want.dtype == got.dtype and torch.equal(want, got)
