"""Operators that take numbers, with 0-dim float64 tensors in the place of floats that only the run knows.

Each number takes part as PyTorch has it do: it decides a result's dtype only where there are ints beside it, and no gradient goes to it.
"""

import torch

from .. import _C


def is_number(value):
    return not isinstance(value, torch.Tensor) or (value.dtype == torch.float64 and value.dim() == 0)


def floating(tensor):
    """The tensor as it takes part beside a float."""
    return tensor if tensor.dtype.is_floating_point or tensor.dtype.is_complex else tensor.to(torch.get_default_dtype())


def operand(value, like):
    if isinstance(value, torch.Tensor):
        return value.to(device=like.device, dtype=like.dtype)
    return torch.scalar_tensor(value, dtype=like.dtype, device=like.device)


# Not asked of an operator: this module is imported in the midst of a capture, perhaps under the program's modes.
WORDS_OF_OVERFLOW = {getattr(torch, dtype): words for dtype, words in _C.overflow_errors().items()}


def check_range(value, like):
    """Raises, on a CPU, for what eager's kernels refuse to convert to the tensor's dtype."""
    if isinstance(value, torch.Tensor) and like.device.type == "cpu" and like.dtype in WORDS_OF_OVERFLOW:
        fits = (value.detach().abs() <= torch.finfo(like.dtype).max) | ~torch.isfinite(value)
        torch.ops.aten._assert_async.msg(fits, WORDS_OF_OVERFLOW[like.dtype])


def write(input, result):
    if not torch.can_cast(result.dtype, input.dtype):
        raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {input.dtype}")
    return input.copy_(result)


def clamp(input, min=None, max=None):
    tensor = floating(input)
    check_range(min, tensor)
    check_range(max, tensor)
    return torch.clamp(
        tensor, None if min is None else operand(min, tensor), None if max is None else operand(max, tensor)
    )


def clamp_(input, min=None, max=None):
    return write(input, clamp(input.clone(), min, max))  # the backward reads what was there before


def clamp_min(input, min):
    return clamp(input, min)


def clamp_min_(input, min):
    return clamp_(input, min)


def clamp_max(input, max):
    return clamp(input, None, max)


def clamp_max_(input, max):
    return clamp_(input, None, max)


def pow_number(input, exponent):
    if not isinstance(input, torch.Tensor):
        return torch.pow(input, exponent)
    if (
        is_number(input)
        and isinstance(exponent, torch.Tensor)
        and (floating(exponent) is not exponent or exponent.dim() == 0)
    ):
        input = input.to(floating(exponent).dtype)
    narrow = input.dtype in (torch.float16, torch.bfloat16)
    tensor = (
        input
        if isinstance(exponent, torch.Tensor) and exponent.dim() > 0 and not is_number(exponent)
        else floating(input)
    )
    wide = tensor.to(torch.float32) if narrow else tensor
    if is_number(exponent):
        exponent = operand(exponent, wide)
    result = torch.pow(wide, exponent)
    return result.to(input.dtype) if narrow else result


def pow_number_(input, exponent):
    return write(input, pow_number(input.clone(), exponent))


def fill(input, value):
    check_range(value, input)
    return torch.empty_like(input).copy_(value.detach())


def fill_(input, value):
    check_range(value, input)
    return input.copy_(value.detach())


def masked_fill(input, mask, value):
    check_range(value, input)
    return torch.where(mask, operand(value, input), input)


def masked_fill_(input, mask, value):
    return input.copy_(masked_fill(input, mask, value))


def lerp(input, end, weight):
    check_range(weight, input)
    return torch.lerp(input, end, operand(weight, input))


def lerp_(input, end, weight):
    check_range(weight, input)
    return input.lerp_(end, operand(weight, input))


def where(condition, input, other):
    if not is_number(input):
        like = floating(input)
        check_range(other, like)
        return torch.where(condition, like, operand(other, like))
    if not is_number(other):
        like = floating(other)
        check_range(input, like)
        return torch.where(condition, operand(input, like), like)
    like = torch.empty((), dtype=torch.get_default_dtype(), device=condition.device)
    return torch.where(condition, operand(input, like), operand(other, like))


def full(size, fill_value, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    made = torch.empty(
        size,
        dtype=dtype or torch.get_default_dtype(),
        layout=layout or torch.strided,
        device=device,
        pin_memory=pin_memory,
    )
    check_range(fill_value, made)
    return made.copy_(fill_value).requires_grad_(requires_grad)


def full_like(input, fill_value, **how):
    made = torch.empty_like(input, **how)
    check_range(fill_value, made)
    return made.copy_(fill_value)


def new_full(input, size, fill_value, **how):
    made = input.new_empty(size, **how)
    check_range(fill_value, made)
    return made.copy_(fill_value)


def tensor_of(data, *, dtype=None, device=None, requires_grad=False):
    dtype = dtype or torch.get_default_dtype()
    if isinstance(data, torch.Tensor):
        made = data.to(device=device or "cpu", dtype=dtype, copy=True)
    elif isinstance(data, (list, tuple)):
        made = torch.stack([tensor_of(e, dtype=dtype, device=device) for e in data])
    else:
        made = torch.scalar_tensor(data, dtype=dtype, device=device or "cpu")
    return made.requires_grad_() if requires_grad else made
