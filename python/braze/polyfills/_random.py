"""PyTorch's random state in a graph: operators that read and set it, and keep their place among the random operators around them.

A torch.Generator of the program is a tensor here, its state: while something is drawn from it, the default generator has that state.
"""

import torch

_library = torch.library.Library("braze", "DEF")
_library.define("seed(Tensor like, SymInt seed) -> ()")
_library.define("random_state(Tensor like) -> Tensor")
_library.define("set_random_state(Tensor state) -> ()")
_library.define("enter_generator(Tensor state) -> Tensor")
_library.define("leave_generator(Tensor before) -> Tensor")
_library.define("seeded_state(Tensor like, SymInt seed) -> Tensor")

with torch._C.DisableTorchFunction():  # not seen by a mode of the program that captures first
    _size = torch.Generator().get_state().numel()


def _seed(like, seed):
    torch.random.manual_seed(seed)


def _random_state(like):
    return torch.default_generator.get_state()


def _set_random_state(state):
    torch.default_generator.set_state(state)


def _seeded_state(like, seed):
    return torch.Generator().manual_seed(seed).get_state()


def _exchanged_state(state):
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(state)
    return before


def _nothing(*args):
    pass


def _some_state(like, *args):
    return like.new_empty(_size, dtype=torch.uint8)


for _name, _kernel, _meta in (
    ("seed", _seed, _nothing),
    ("random_state", _random_state, _some_state),
    ("set_random_state", _set_random_state, _nothing),
    # Random operators between the two are eager's own (passes/seed_random).
    ("enter_generator", _exchanged_state, _some_state),
    ("leave_generator", _exchanged_state, _some_state),
    ("seeded_state", _seeded_state, _some_state),
):
    _library.impl(_name, _kernel, "CPU")
    _library.impl(_name, _meta, "Meta")


def _like():
    return torch.empty(0, device="cpu")


def _as_int64(seed):
    seed = int(seed)
    if seed >= 2**64 or seed < -(2**63):
        _refuse(seed)
    return seed - 2**64 if seed >= 2**63 else seed


def _refuse(seed):
    torch.Generator().manual_seed(seed)  # raises


_refuse._braze_disable = True


def manual_seed(seed):
    torch.ops.braze.seed(_like(), _as_int64(seed))
    return torch.default_generator


def get_rng_state():
    return torch.ops.braze.random_state(_like())


def set_rng_state(new_state):
    torch.ops.braze.set_random_state(new_state)


def seeded_state(seed):
    """What the state of a torch.Generator is after manual_seed(seed)."""
    return torch.ops.braze.seeded_state(_like(), _as_int64(seed))


def drawn_with(state, function, args, kwargs):
    """The result of a random operator that draws from a generator in this state, and the state after it."""
    before = torch.ops.braze.enter_generator(state)
    result = function(*args, **kwargs)
    return result, torch.ops.braze.leave_generator(before)
