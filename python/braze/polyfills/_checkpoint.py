"""Policies of torch.utils.checkpoint, which are asked about the operators that were captured (src/capture/builtins/checkpoint.cpp)."""

import torch
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from ._attention import not_captured


class SelectiveContext:
    """In place of the modes that create_selective_checkpoint_contexts makes."""

    def __init__(self, policy):
        self.policy = policy


def selective_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    policy = policy_fn_or_list
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, torch._ops.OpOverload):
                not_captured("a list of a checkpoint that holds something else than overloads of operators")

        def policy(ctx, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE if op in policy_fn_or_list else CheckpointPolicy.PREFER_RECOMPUTE

    elif not callable(policy):
        not_captured("a policy of a checkpoint that cannot be called")
    return SelectiveContext(policy), SelectiveContext(None)


def policies_of(policy, calls):
    said = []
    for op, args, kwargs, results in calls:
        answer = policy(SelectiveCheckpointContext(is_recompute=False, op_output=results), op, *args, **kwargs)
        if isinstance(answer, bool):
            answer = CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
        said.append(answer.value if isinstance(answer, CheckpointPolicy) else CheckpointPolicy.PREFER_RECOMPUTE.value)
    return said
