"""torch.nn.attention.flex_attention: one operator, braze::flex_attention, with its functions as a graph over numbers."""

import sys

import torch


def score_function(function, arguments):
    """What a function of one score gives. Capture evaluates it as one that stands for all scores."""
    return function(*arguments)


def cut_scores(inputs, outputs):
    """The text of the graph that computes `outputs` from `inputs`, and the tensors that it reads besides these."""
    raise RuntimeError("only capture knows what was recorded")


def not_captured(reason):
    """Ends the capture before the call of flex_attention."""
    raise NotImplementedError(reason)


def check(query, key, value, kernel_options):
    """A reason why the operator is not for these, or None."""
    for t in (query, key, value):
        if t.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            return f"flex_attention on {t.dtype}"
        if t.dim() != 4 or t.device != query.device or t.dtype != query.dtype:
            return "flex_attention on tensors that differ in dtype, device or rank"
    if kernel_options.get("BACKEND", "AUTO") not in ("AUTO", "TRITON"):
        return "flex_attention with the backend " + kernel_options["BACKEND"]
    return None


def in_autocast_dtype(tensor):
    device = tensor.device.type
    if torch.is_autocast_enabled(device) and tensor.dtype == torch.float32:
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


def block_lists(block_mask, needs_grad):
    """(lists by rows, lists by columns, block sizes); nothing where there is but one block."""
    flex = sys.modules["torch.nn.attention.flex_attention"]
    q_block, kv_block = block_mask[-3], block_mask[-2]
    if q_block >= flex._LARGE_SPARSE_BLOCK_SIZE and kv_block >= flex._LARGE_SPARSE_BLOCK_SIZE:
        return [], [], q_block, kv_block
    rows, columns = list(block_mask[2:6]), list(block_mask[6:10])
    if rows[2] is None:
        rows = rows[:2]
    if columns[0] is None:
        columns = []
    elif columns[2] is None:
        columns = columns[:2]
    if needs_grad and len(columns) != len(rows):
        not_captured("the backward of flex_attention with a BlockMask without its transposed lists")
    return rows, columns, q_block, kv_block


def flex_attention(
    operator,
    query,
    key,
    value,
    score_mod,
    block_mask,
    scale,
    kernel_options,
    score_mod_other_buffers=(),
    mask_mod_other_buffers=(),
):
    flex = sys.modules["torch.nn.attention.flex_attention"]
    query, key, value = in_autocast_dtype(query), in_autocast_dtype(key), in_autocast_dtype(value)
    refused = check(query, key, value, kernel_options)
    if refused is not None:
        not_captured(refused)
    needs_grad = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    if key.shape[0] != query.shape[0]:
        key, value = key.expand(query.shape[0], -1, -1, -1), value.expand(query.shape[0], -1, -1, -1)
    rows, columns, q_block, kv_block = block_lists(block_mask, needs_grad)
    mask_mod = block_mask[-1]

    device = query.device
    score = torch.empty((), dtype=torch.float32, device=device, requires_grad=needs_grad)
    points = [torch.empty((), dtype=torch.int64, device=device) for _ in range(4)]
    tangent = torch.empty((), dtype=torch.float32, device=device)
    scored = kept = gradient = None
    if score_mod is not flex._identity:
        scored = score_function(score_mod, (score, *points, *score_mod_other_buffers))
        if scored.dtype != torch.float32:
            scored = scored.to(torch.float32)
        if needs_grad:
            if not scored.requires_grad:
                gradient = torch.zeros((), dtype=torch.float32, device=device)
            elif scored is score:
                gradient = tangent
            else:
                gradient = torch.autograd.grad(scored, score, tangent, allow_unused=True)[0]
                if gradient is None:
                    gradient = torch.zeros((), dtype=torch.float32, device=device)
    if mask_mod is not flex.noop_mask:
        kept = score_function(mask_mod, (*points, *mask_mod_other_buffers))
        if kept.dtype != torch.bool:
            kept = kept.to(torch.bool)
    functions, operands = cut_scores([score, *points, tangent], [scored, kept, gradient])
    return torch.ops.braze.flex_attention(
        query, key, value, rows, columns, operands, functions, q_block, kv_block, scale
    )
