"""flex_attention in compiled functions, and its kernels under Triton's interpreter.

As a program (with TRITON_INTERPRET=1): runs the cases named on the command line with the kernels that a GPU would get,
prints {name: "" or what is wrong} as JSON.
"""

from unittest import mock

import torch
from interpreter import report
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import braze
from braze import _C, _triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROLES = (
    "query key value out lse max grad_out grad_lse delta grad_query grad_key grad_value num idx full_num full_idx "
    "operand stride batch heads queries keys scale list_batch list_head list_columns full_columns error"
).split()


def dense(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, **_):
    """What attention is, in float64: (out, lse)."""
    group = query.shape[1] // key.shape[1]
    key, value = (t.double().repeat_interleave(group, 1) for t in (key, value))
    scores = query.double() @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    index = [
        torch.arange(n, device=query.device).view([n if d == i else 1 for d in range(4)])
        for i, n in enumerate(scores.shape)
    ]
    if score_mod is not None:
        scores = score_mod(scores, *index)
    if block_mask is not None:
        scores = torch.where(block_mask.mask_mod(*index), scores, -float("inf"))
    lse = scores.logsumexp(-1)
    weights = torch.where(lse[..., None] == -float("inf"), 0.0, torch.exp(scores - lse[..., None]))
    return weights @ value, lse


def r(*shape, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=g, dtype=torch.float64).to(DEVICE, dtype)


def qkv(batch=2, heads=2, queries=128, keys=None, dim=16, value_dim=None, kv_heads=None, dtype=torch.float32):
    keys, value_dim, kv_heads = keys or queries, value_dim or dim, kv_heads or heads
    return (
        r(batch, heads, queries, dim, dtype=dtype),
        r(batch, kv_heads, keys, dim, dtype=dtype, seed=1),
        r(batch, kv_heads, keys, value_dim, dtype=dtype, seed=2),
    )


def causal(b, h, q, k):
    return q >= k


def mask_of(function, queries, keys=None, batch=None, heads=None, block=32):
    return create_block_mask(function, batch, heads, queries, keys or queries, device=DEVICE, BLOCK_SIZE=block)


slopes = torch.rand(4).to(DEVICE)
documents = torch.sort(torch.randint(0, 4, (2, 128), generator=torch.Generator().manual_seed(3)), 1)[0].to(DEVICE)
table = r(2, 2, 128, 128)
offset = torch.tensor(37).to(DEVICE)
F16, BF16 = torch.float16, torch.bfloat16

# name: (tensors, keyword arguments)
CASES = {
    "plain": (qkv(), {}),
    "causal": (qkv(), {"block_mask": mask_of(causal, 128)}),
    "ragged": (qkv(queries=100, keys=77), {"block_mask": mask_of(lambda b, h, q, k: q + 3 >= k, 100, 77)}),
    "ragged_plain": (qkv(queries=70, keys=45), {}),
    "alibi": (
        qkv(),
        {"score_mod": lambda s, b, h, q, k: s + slopes[h] * (k - q), "block_mask": mask_of(causal, 128)},
    ),
    "softcap": (qkv(), {"score_mod": lambda s, b, h, q, k: 5 * torch.tanh(s / 5), "block_mask": mask_of(causal, 128)}),
    "documents": (
        qkv(),
        {"block_mask": mask_of(lambda b, h, q, k: (documents[b, q] == documents[b, k]) & (q >= k), 128, batch=2)},
    ),
    "bias": (qkv(), {"score_mod": lambda s, b, h, q, k: s * 2 + table[b, h, q, k]}),
    "offset": (qkv(), {"block_mask": mask_of(lambda b, h, q, k: q + offset - 40 >= k, 128)}),
    "empty_rows": (qkv(), {"block_mask": mask_of(lambda b, h, q, k: (q > 40) & (k < 64), 128)}),
    "window": (
        qkv(queries=96),
        {"block_mask": mask_of(lambda b, h, q, k: (q >= k) & (q - k <= 20), 96), "scale": 0.7},
    ),
    "heads": (qkv(), {"block_mask": mask_of(lambda b, h, q, k: q >= k - 16 * h, 128, heads=2)}),
    "grouped": (qkv(heads=4, kv_heads=2), {"block_mask": mask_of(causal, 128), "enable_gqa": True}),
    "dims": (qkv(dim=24, value_dim=40), {"block_mask": mask_of(causal, 128)}),
    "f16": (qkv(dtype=F16), {"block_mask": mask_of(causal, 128)}),
    "bf16": (
        qkv(dtype=BF16),
        {"score_mod": lambda s, b, h, q, k: s + slopes[h] * (k - q), "block_mask": mask_of(causal, 128)},
    ),
    "nonlinear": (
        qkv(),
        {"score_mod": lambda s, b, h, q, k: torch.where(q >= k, s * torch.sigmoid(s), s - (q % 7) * 0.1)},
    ),
    "query": (qkv(queries=1, keys=70), {"score_mod": lambda s, b, h, q, k: s - 0.01 * k}),
}


def loaded_bounds():
    """Numbers that a kernel loads are ranges' bounds for the interpreter, whatever NumPy says of arrays of one element."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def with_index(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = with_index


class Interpreted:
    """The operators' implementation for the CPU by the kernels for a GPU, in Triton's interpreter."""

    def __init__(self):
        self.runs = 0
        self.library = torch.library.Library("braze", "IMPL")
        for name in ("flex_attention", "flex_attention_backward"):
            self.library.impl(name, getattr(self, name), "CPU", allow_override=True)

    def launch(self, made, tensors, operands, lists, scale):
        from triton_cases import Library

        query, key = tensors["query"], tensors["key"]
        tensors = dict(tensors, **dict(zip(("num", "idx", "full_num", "full_idx"), lists)))
        one = lambda n, stride: 0 if n == 1 else stride
        numbers = {
            "batch": query.shape[0],
            "heads": query.shape[1],
            "queries": query.shape[2],
            "keys": key.shape[2],
            "scale": scale,
        }
        if lists:
            rows = lists[0].shape
            numbers["list_batch"] = one(rows[0], rows[1] * rows[2])
            numbers["list_head"] = one(rows[1], rows[2])
            numbers["list_columns"] = lists[1].shape[3]
            numbers["full_columns"] = lists[-1].shape[3]
        error = torch.zeros(1, dtype=torch.int32)
        values = []
        for role, index, of in made["roles"]:
            role = ROLES[role]
            if role == "operand":
                values.append(operands[index])
            elif role == "stride":
                values.append(tensors[ROLES[of]].stride(index))
            elif role == "error":
                values.append(error)
            else:
                values.append(numbers[role] if role in numbers else tensors[role])
        by_keys = any(ROLES[role] == "grad_key" for role, _, _ in made["roles"])
        extent, heads = (key.shape[2], key.shape[1]) if by_keys else (query.shape[2], query.shape[1])
        kernel = _triton.define(made["text"], made["kernel"])
        kernel.fn.__globals__["libdevice"] = Library()
        kernel[(-(-extent // made["rows"]) * query.shape[0] * heads,)](*values)
        assert int(error) == 0, "an index out of range"
        self.runs += 1

    def flex_attention(self, query, key, value, rows, columns, operands, functions, q_block, kv_block, scale):
        made = _C._attention_kernels(
            query, key, value, rows, columns, operands, functions, q_block, kv_block, scale, False
        )
        out = torch.full((*query.shape[:3], value.shape[3]), 77.0, dtype=query.dtype)
        lse, top = torch.full(query.shape[:3], 77.0), torch.full(query.shape[:3], 77.0)
        tensors = {"query": query, "key": key, "value": value, "out": out, "lse": lse, "max": top}
        self.launch(made[0], tensors, operands, rows, scale)
        return out, lse, top

    def flex_attention_backward(
        self,
        grad_out,
        grad_lse,
        out,
        lse,
        query,
        key,
        value,
        rows,
        columns,
        operands,
        functions,
        q_block,
        kv_block,
        scale,
    ):
        made = _C._attention_kernels(
            query, key, value, rows, columns, operands, functions, q_block, kv_block, scale, True
        )
        tensors = {"query": query, "key": key, "value": value, "out": out, "lse": lse, "grad_out": grad_out}
        tensors |= {"grad_lse": grad_lse, "delta": torch.full_like(lse, 77.0)}
        gradients = {"grad_" + name: torch.full_like(tensors[name], 77.0) for name in ("query", "key", "value")}
        tensors |= gradients
        self.launch(made[1 if grad_lse is None else 2], tensors, operands, rows, scale)
        self.launch(made[3], tensors, operands, rows, scale)
        self.launch(made[4], tensors, operands, columns, scale)
        return tuple(gradients.values())


def wrong(name):
    """Raises where a case differs from float64: results, log-sum-exp, and gradients."""
    tensors, options = CASES[name]
    given = [t.clone().requires_grad_() for t in tensors]
    with mock.patch.object(flex, "_validate_device", lambda *_: None):  # it refuses gradients on the CPU
        compiled = braze.compile(lambda q, k, v: flex_attention(q, k, v, return_lse=True, **options), fullgraph=True)
        out, lse = compiled(*given)
    exact = [t.double().requires_grad_() for t in tensors]
    want, want_lse = dense(*exact, **options)
    low = out.dtype != torch.float32
    tolerance = {"rtol": 2e-2 if low else 1e-4, "atol": 3e-2 if low else 1e-4}
    close = lambda a, b, what: torch.testing.assert_close(
        a.double(), b, msg=lambda m: f"{what}: {m}", equal_nan=True, **tolerance
    )
    close(out, want, "out")
    close(lse, want_lse, "lse")
    weights = r(*out.shape, seed=5)
    finite = torch.isfinite(want_lse)
    for with_lse in (False, True):
        loss = lambda o, l: (o * weights).sum() + (torch.where(finite, l, 0.0).sum() if with_lse else 0)
        got = torch.autograd.grad(loss(out, lse), given, retain_graph=True)
        expected = torch.autograd.grad(loss(want, want_lse), exact, retain_graph=True)
        for x, y, what in zip(got, expected, ("query", "key", "value")):
            close(x, y, f"gradient of {what}, {'with' if with_lse else 'without'} that of lse")


if __name__ == "__main__":
    from triton_cases import plain_numbers

    plain_numbers()
    loaded_bounds()
    _C._register_operators()
    interpreted = Interpreted()

    def check(case):
        before = interpreted.runs
        wrong(case)
        return "" if interpreted.runs - before == 7 else f"{interpreted.runs - before} kernels ran"

    report(CASES, check)
