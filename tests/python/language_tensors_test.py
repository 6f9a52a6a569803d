"""Tensors, modules and graph breaks inside compiled functions: same results as the interpreter, in one graph unless a case says otherwise."""

import sys

import pytest
import torch
import torch.nn.functional as F
from cases import row, run, x, y
from harness import Cases

case = Cases()


@pytest.mark.parametrize("fn, args, kw", case)
def test_language(fn, args, kw):
    run(fn, args, kw)


# ---- tensors ----


@case(x)
def tensor_attributes(a):
    return (
        a.shape,
        a.dtype,
        a.device,
        a.ndim,
        a.size(0),
        a.numel(),
        a.is_contiguous(),
        a.T.shape,
        len(a),
        a.stride(),
        a.is_floating_point(),
    )


@case(x, y)
def tensor_operators(a, b):
    return (
        a + b,
        a - 2,
        3 - a,
        a * b,
        a / 2,
        1 / (a + 9),
        a**2,
        -a,
        abs(a),
        a > b,
        a == a,
        a @ b.T,
        a // 2,
        a % 3,
        ~(a > 0),
        (a > 0) & (b > 0),
    )


@case(x)
def tensor_indexing(a):
    return (
        a[0],
        a[:, 1:3],
        a[..., -1],
        a[None],
        a[[0, 2]],
        a[a > 0].numel() if False else a[torch.tensor([1, 0])],
        a[0, 1],
        a[1:, ::2],
    )


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
    return (
        torch.zeros(2, 3) + 1,
        torch.arange(4),
        torch.full((2,), 7.0),
        torch.ones_like(a),
        a.new_zeros(2),
        torch.tensor([1.0, 2.0]) * 2,
        torch.eye(3),
    )


@case(x)
def reductions(a):
    return (
        a.sum(),
        a.mean(0),
        a.max(),
        a.max(1),
        a.argmax(-1),
        a.std(),
        a.norm(),
        a.var(1, keepdim=True),
        a.prod(1),
        a.amin(0),
        (a > 0).any(),
        a.cumsum(0),
    )


@case(x)
def views(a):
    return (
        a.view(-1),
        a.reshape(2, 6),
        a.transpose(0, 1),
        a.permute(1, 0).contiguous(),
        a.unsqueeze(0),
        a.expand(2, 3, 4),
        a.flatten(),
        a.chunk(2, 1),
        a.split([1, 2]),
    )


@case(x)
def dtypes(a):
    return (
        a.double(),
        a.half(),
        a.to(torch.bfloat16),
        a.int(),
        a.bool(),
        a.to(torch.float64).to(a.dtype),
        a.type_as(a),
        a.long(),
    )


@case(x, row, row)
def functional(a, w, b):
    return (
        F.layer_norm(a, (4,), w, b),
        F.softmax(a, -1),
        F.gelu(a),
        F.silu(a),
        F.relu(a),
        F.log_softmax(a, 0),
        F.dropout(a, 0.5, False),
        F.pad(a, (1, 1)),
        F.normalize(a),
    )


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


@case(x)
def print_is_deferred(a):
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
    sys.stdout.flush()
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
            sys.stdout.flush()
    return a * 2


@case(x, graphs=None)
def break_in_try(a):
    try:
        b = a + 1
        sys.stdout.flush()
        c = b * 2
        raise ValueError("x")
    except ValueError:
        return c - 1


@case(x, graphs=None)
def break_in_with(a):
    with torch.no_grad():
        b = a + 1
        sys.stdout.flush()
        c = b * 2
    return c, torch.is_grad_enabled()
