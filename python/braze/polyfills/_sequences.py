"""Functions of torch on sequences of several lengths, whose own code in C++ reads the lengths while it is traced."""

import torch


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    how = torch.nn._reduction.get_enum(reduction)
    numbers = isinstance(input_lengths, (list, tuple)) and isinstance(target_lengths, (list, tuple))
    if not numbers or log_probs.device.type != "cpu":
        return torch.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, how, zero_infinity)
    batched = log_probs.dim() == 3
    losses = torch._ctc_loss(
        log_probs if batched else log_probs.unsqueeze(1), targets, input_lengths, target_lengths, blank, zero_infinity
    )[0]
    if zero_infinity:
        losses = torch.where(losses == float("inf"), 0.0, losses)
    if how == 1:
        return (losses / torch.tensor(target_lengths, dtype=losses.dtype).clamp_min(1)).mean()
    if how == 2:
        return losses.sum()
    return losses if batched else losses.squeeze(0)


def pack_padded_sequence(input, lengths, batch_first):
    if batch_first:
        input = input.transpose(0, 1)
    steps = lengths[0].item()
    torch._check(steps <= input.shape[0], "a length is larger than the sequences are")
    torch._check(
        lengths[-1].item() > 0,
        "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0",
    )
    torch._check(
        (lengths[:-1] >= lengths[1:]).all().item(),
        "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True",
    )
    there = torch.arange(input.shape[0]).unsqueeze(1) < lengths
    return input[there.to(input.device)], there.sum(1)[:steps]


def pad_packed_sequence(data, batch_sizes, batch_first, padding_value, total_length):
    steps, batch = batch_sizes.shape[0], batch_sizes[0].item()
    torch._check(batch >= 1)
    sizes = batch_sizes.to(data.device)
    firsts = sizes.cumsum(0) - sizes
    if total_length > 0:
        torch._check(
            steps <= total_length, "Expected total_length to be at least the length of the longest sequence in input"
        )
        sizes = torch.nn.functional.pad(sizes, (0, total_length - steps))
        firsts = torch.nn.functional.pad(firsts, (0, total_length - steps))
    rows = torch.arange(batch, device=data.device)
    there = rows < sizes[:, None]
    # Where a sequence is over, some element of the data, which is not taken.
    items = data[(firsts[:, None] + rows).clamp(max=data.shape[0] - 1)]
    out = torch.where(there[(...,) + (None,) * (data.dim() - 1)], items, padding_value)
    return out.transpose(0, 1) if batch_first else out, there.sum(0).cpu()
