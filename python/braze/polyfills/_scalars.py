"""Operators whose number is a tensor.

As with a number, the arithmetic is that of the operands' dtype, of float32 for 16-bit floats, and no gradient goes to it.
"""

import torch


def scalar_as_operand(value, like):
    return value.detach().to(torch.float64 if like.dtype == torch.float64 else torch.float32)


def wide(tensor):
    return tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)


def add_scaled(self, other, *, alpha):
    return (wide(self) + wide(other) * scalar_as_operand(alpha, self)).to(self.dtype)


def sub_scaled(self, other, *, alpha):
    return (wide(self) - wide(other) * scalar_as_operand(alpha, self)).to(self.dtype)


def addcmul(self, tensor1, tensor2, *, value):
    return (wide(self) + scalar_as_operand(value, self) * wide(tensor1) * wide(tensor2)).to(self.dtype)


def addcdiv(self, tensor1, tensor2, *, value):
    return (wide(self) + scalar_as_operand(value, self) * wide(tensor1) / wide(tensor2)).to(self.dtype)


def add_scaled_(self, other, *, alpha):
    if self.dtype in (torch.float32, torch.float64):
        return self.add_(other * scalar_as_operand(alpha, self))
    return self.copy_(add_scaled(self, other, alpha=alpha))


def sub_scaled_(self, other, *, alpha):
    if self.dtype in (torch.float32, torch.float64):
        return self.sub_(other * scalar_as_operand(alpha, self))
    return self.copy_(sub_scaled(self, other, alpha=alpha))


def addcmul_(self, tensor1, tensor2, *, value):
    if self.dtype in (torch.float32, torch.float64):
        return self.add_(scalar_as_operand(value, self) * tensor1 * tensor2)
    return self.copy_(addcmul(self, tensor1, tensor2, value=value))


def addcdiv_(self, tensor1, tensor2, *, value):
    if self.dtype in (torch.float32, torch.float64):
        return self.add_(scalar_as_operand(value, self) * tensor1 / tensor2)
    return self.copy_(addcdiv(self, tensor1, tensor2, value=value))


def scalars_of(value, n):
    if isinstance(value, (list, tuple)):
        return value
    return [value] * n if value.dim() == 0 else list(value.unbind(0))


def foreach_add_scaled(self, other, *, alpha):
    return tuple([add_scaled(a, b, alpha=alpha) for a, b in zip(self, other, strict=True)])


def foreach_sub_scaled(self, other, *, alpha):
    return tuple([sub_scaled(a, b, alpha=alpha) for a, b in zip(self, other, strict=True)])


def foreach_add_scaled_(self, other, *, alpha):
    for a, b in zip(self, other, strict=True):
        add_scaled_(a, b, alpha=alpha)
    return self


def foreach_sub_scaled_(self, other, *, alpha):
    for a, b in zip(self, other, strict=True):
        sub_scaled_(a, b, alpha=alpha)
    return self


def foreach_addcmul(self, tensor1, tensor2, value):
    return tuple(
        [
            addcmul(a, b, c, value=v)
            for a, b, c, v in zip(self, tensor1, tensor2, scalars_of(value, len(self)), strict=True)
        ]
    )


def foreach_addcdiv(self, tensor1, tensor2, value):
    return tuple(
        [
            addcdiv(a, b, c, value=v)
            for a, b, c, v in zip(self, tensor1, tensor2, scalars_of(value, len(self)), strict=True)
        ]
    )


def foreach_addcmul_(self, tensor1, tensor2, value):
    for a, b, c, v in zip(self, tensor1, tensor2, scalars_of(value, len(self)), strict=True):
        addcmul_(a, b, c, value=v)
    return self


def foreach_addcdiv_(self, tensor1, tensor2, value):
    for a, b, c, v in zip(self, tensor1, tensor2, scalars_of(value, len(self)), strict=True):
        addcdiv_(a, b, c, value=v)
    return self
