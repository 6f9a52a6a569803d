"""Numbers of few bits for floats and back (quantized_decomposed::*, as torch.ao.quantization's exported models call them), and fake
quantisation: one graph without calls, results and gradients of eager."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from op_samples import check
from torch import nn

import braze

few = torch.ops.quantized_decomposed
aten = torch.ops.aten

X = torch.linspace(-3, 3, 96).sin().mul(2).reshape(4, 6, 4)
BYTES = (torch.arange(96) * 37 % 251 - 125).to(torch.int8).reshape(4, 6, 4)
SCALES, ZEROS = torch.linspace(0.01, 0.05, 6), torch.arange(-3, 3, dtype=torch.int32)
ROWS = torch.linspace(0.01, 0.03, 24).reshape(4, 6, 1)
GROUPS = torch.linspace(0.01, 0.03, 12).reshape(6, 2)


def per_tensor(x, scale, zero):
    small = few.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return small, few.dequantize_per_tensor.tensor(small, scale, zero, -128, 127, torch.int8)


CASES = {
    "quantize": lambda x: few.quantize_per_tensor(x, 0.013, 3, -128, 127, torch.int8),
    "quantize_unsigned": lambda x: few.quantize_per_tensor(x, 0.013, 100, 10, 240, torch.uint8),
    "quantize_words": lambda x: few.quantize_per_tensor(x, 1e-7, 0, -(2**31), 2**31 - 1, torch.int32),
    "quantize_channels": lambda x: few.quantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, torch.int8),
    "quantize_last": lambda x: few.quantize_per_channel(x, SCALES[:4], ZEROS[:4], -1, 0, 7, torch.int16),
    "quantize_rows": lambda x: few.quantize_per_token(x.float(), ROWS, ROWS.round(), -128, 127, torch.int8),
    "choose_asymmetric": lambda x: few.choose_qparams_per_token_asymmetric(x.float(), torch.int8),
    "rows_and_back": lambda x: (lambda s, z: few.dequantize_per_token(few.quantize_per_token(x.float(), s, z, -128, 127, torch.int8), s, z, -128, 127, torch.int8, torch.float32))(*few.choose_qparams_per_token_asymmetric(x.float(), torch.int8)),
}  # fmt: skip
BACK = {
    "dequantize": lambda w: few.dequantize_per_tensor(w, 0.013, 3, -128, 127, torch.int8),
    "dequantize_channels": lambda w: few.dequantize_per_channel(w, SCALES, ZEROS, 1, -128, 127, torch.int8),
    "dequantize_without_zeros": lambda w: few.dequantize_per_channel(w, SCALES, None, 1, -128, 127, torch.int8, out_dtype=torch.bfloat16),
    "dequantize_rows": lambda w: few.dequantize_per_token(w, ROWS, ROWS.round(), -128, 127, torch.int8, torch.float32),
    "dequantize_groups": lambda w: few.dequantize_per_channel_group(w[0], GROUPS, None, -8, 7, torch.int8, 2, torch.float32),
    "dequantize_groups_with_zeros": lambda w: few.dequantize_per_channel_group(w[0], GROUPS, torch.arange(12, dtype=torch.int32).reshape(6, 2), -8, 7, torch.int8, 2, torch.bfloat16),
}  # fmt: skip


def no_calls(explained):
    assert explained.graph_count == 1 and explained.graph_break_count == 0, explained
    assert explained.extern_count == 0 and explained.kernel_count > 0, explained.plans


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_to_few_bits(name, dtype):
    no_calls(check(CASES[name], (X.to(dtype),), {}))


@pytest.mark.parametrize("name", BACK)
def test_from_few_bits(name):
    no_calls(check(BACK[name], (BYTES,), {}))


def test_parameters_in_tensors():
    no_calls(check(per_tensor, (X, torch.tensor([0.02], dtype=torch.float64), torch.tensor([5])), {}))
    no_calls(check(per_tensor, (X, torch.tensor(0.02), torch.tensor(5, dtype=torch.int32)), {}))


def test_ranges_outside_the_dtype_raise():
    f = lambda x: few.quantize_per_tensor(x, 0.1, 0, -200, 127, torch.int8)
    with pytest.raises(AssertionError, match="quant_min out of bounds"):
        f(X)
    with pytest.raises(AssertionError, match="quant_min out of bounds"):
        braze.compile(f)(X)


class Trained(nn.Module):
    """A linear layer between fake quantisations, as in training for few bits."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.tensor([0.05]))
        self.register_buffer("zero", torch.tensor([3], dtype=torch.int32))

    def forward(self, x):
        w = torch.fake_quantize_per_tensor_affine(self.linear.weight, 0.01, 0, -127, 127)
        x = torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, 255)
        return torch.fake_quantize_per_tensor_affine(
            nn.functional.linear(x, w, self.linear.bias).relu(), 0.02, 0, 0, 255
        )


def gradients(f, *args):
    args = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
    out = f(*args)
    out.square().sum().backward()
    return [out.detach(), *(a.grad for a in args if a.requires_grad)]


def same_gradients(f, *args):
    want, got = gradients(f, *args), gradients(braze.compile(f, fullgraph=True), *args)
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(g, w)


def test_training_for_few_bits_is_one_graph():
    torch.manual_seed(0)
    model, x = Trained(), torch.randn(5, 8)
    want = gradients(model, x) + [p.grad for p in model.parameters()]
    model.zero_grad()
    compiled = braze.compile(model, fullgraph=True)
    got = gradients(compiled, x) + [p.grad for p in model.parameters()]
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(g, w)


@pytest.mark.parametrize("layout", ["rows", "channels last"])
def test_fake_quantisation(layout):
    x = torch.cat([torch.linspace(-9, 9, 95), torch.tensor([float("nan")])])
    x = x.reshape(2, 4, 3, 4)
    if layout == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    scale, zero = torch.tensor([0.3]), torch.tensor([2], dtype=torch.int32)

    def f(x):
        return (
            *aten.fake_quantize_per_tensor_affine_cachemask(x, 0.3, 2, -10, 20),
            *(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, scale, zero, torch.tensor([on]), -10, 20)[0] for on in (0, 1)),
        )  # fmt: skip

    no_calls(check(f, (x,), {}))


def test_fake_quantisation_of_channels_is_one_graph():
    f = lambda x: torch.fake_quantize_per_channel_affine(x * 2, SCALES, ZEROS, 1, -20, 20) * 2
    same_gradients(f, X)
    with pytest.raises(RuntimeError, match="zero_point"):
        braze.compile(lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, 0, 20))(X)


@pytest.mark.parametrize("least, most, zero", [(-20, 20, 0), (5, 20, 0), (20, 5, 7)])
def test_arguments_that_eager_refuses(least, most, zero):
    f = lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, zero, least, most)
    check(f, (X,), {})


@pytest.mark.parametrize("zero", [0.0, 1.3, 2.5, -0.5, -3.7, 40.0])
def test_learnt_scales(zero):
    def one(x, scale, zero):
        return torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7, 0.5)

    def each(x, scales, zeros):
        return torch._fake_quantize_learnable_per_channel_affine(x, scales, zeros, 1, -8, 7, 0.5)

    same_gradients(one, X, torch.tensor([0.11]), torch.tensor([zero]))
    same_gradients(each, X, SCALES * 3, torch.full((6,), zero))
