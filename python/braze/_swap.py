"""torch.utils.swap_tensors on tensors that compiled code knows."""

import collections
import functools
import weakref

import torch

from . import _C


def install() -> None:
    """From here on torch.utils.swap_tensors, which refuses tensors that are weakly referenced, has compiled code forget its two first: it
    is then made again, as after a tensor's end. Modules swap tensors where torch.__future__.set_swap_module_params_on_conversion asks for it."""
    swap = torch.utils.swap_tensors

    @functools.wraps(swap)
    def swap_tensors(t1, t2):
        for t in (t1, t2):
            collections.deque(map(_C.let_go, weakref.getweakrefs(t)), 0)  # none of them is to outlive this
        return swap(t1, t2)

    torch.utils.swap_tensors = swap_tensors
