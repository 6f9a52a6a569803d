"""Functions of the standard library that are C in CPython, in Python: capture inlines these in their place.

Arguments are checked and iterators made when the function is called, as in C; the generators hold the rest."""

from ._itertools import (  # noqa: F401
    accumulate,
    chain,
    chain_from_iterable,
    combinations,
    combinations_with_replacement,
    compress,
    count,
    cycle,
    dropwhile,
    filterfalse,
    groupby,
    islice,
    itertool,
    made_of,
    pairwise,
    permutations,
    product,
    repeat,
    starmap,
    takewhile,
    tee,
    zip_longest,
)
from ._attention import cut_scores, flex_attention, not_captured, score_function  # noqa: F401
from ._checkpoint import SelectiveContext, policies_of, selective_contexts  # noqa: F401
from ._control_flow import associative_scan, call_region, cond, map, run_branches, scan, while_loop  # noqa: F401
from ._copy import copy, deepcopy, has_attributes  # noqa: F401
from ._kernels import kernel_kind, launch, run_kernel, triton_operator  # noqa: F401
from ._operator import attrgetter, itemgetter, methodcaller  # noqa: F401
from ._parts import (
    Hashed,
    deterministic_state,
    function_of,
    new_tensor,
    renamed_keywords,
    set_deterministic_state,
    shape_as_tensor,
    tensor_of_parts,
)  # noqa: F401
from ._optim import fused_adagrad_, fused_adam_, fused_adamw_, fused_sgd_  # noqa: F401
from ._sequences import ctc_loss, pack_padded_sequence, pad_packed_sequence  # noqa: F401
from ._pure import (  # noqa: F401
    bisect_left,
    bisect_right,
    cmp_to_key,
    count_elements,
    countOf,
    heapify,
    heappop,
    heappush,
    heappushpop,
    heapreplace,
    indexOf,
    insort_left,
    insort_right,
)
from ._numbers import (  # noqa: F401
    clamp,
    clamp_,
    clamp_max,
    clamp_max_,
    clamp_min,
    clamp_min_,
    fill,
    fill_,
    full,
    full_like,
    lerp,
    lerp_,
    masked_fill,
    masked_fill_,
    new_full,
    pow_number,
    pow_number_,
    tensor_of,
    where,
)
from ._random import drawn_with, get_rng_state, manual_seed, seeded_state, set_rng_state  # noqa: F401
from ._scalars import (  # noqa: F401
    add_scaled,
    add_scaled_,
    addcdiv,
    addcdiv_,
    addcmul,
    addcmul_,
    foreach_add_scaled,
    foreach_add_scaled_,
    foreach_addcdiv,
    foreach_addcdiv_,
    foreach_addcmul,
    foreach_addcmul_,
    foreach_sub_scaled,
    foreach_sub_scaled_,
    sub_scaled,
    sub_scaled_,
)
from ._torch import (  # noqa: F401
    CapturedMode,
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    InferenceMode,
    NoEffect,
    apply_of,
    as_class,
    call_without_grad,
    device_capability,
    device_name,
    group_tensors_by_device_and_dtype,
    is_positive_definite,
    one_hot,
    set_inference,
    set_masked,
    torch_function_at_least,
    torch_function_back,
)
