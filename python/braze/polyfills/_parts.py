"""Tensors of numbers that other tensors hold, state of PyTorch in one value, and calls that generated code cannot spell."""

import functools

import torch


def _leaves(data):
    if isinstance(data, (list, tuple)):
        return [leaf for part in data for leaf in _leaves(part)]
    return [data]


def _type_of(data):
    """The type that torch.tensor gives numbers: of a tensor only its category counts."""
    leaves = _leaves(data)
    if any(x.is_complex() if isinstance(x, torch.Tensor) else isinstance(x, complex) for x in leaves):
        return torch.complex128 if torch.get_default_dtype() == torch.float64 else torch.complex64
    if any(x.is_floating_point() if isinstance(x, torch.Tensor) else isinstance(x, float) for x in leaves):
        return torch.get_default_dtype()
    if all(x.dtype == torch.bool if isinstance(x, torch.Tensor) else isinstance(x, bool) for x in leaves):
        return torch.bool
    return torch.int64


def _made(data, dtype, device):
    if isinstance(data, torch.Tensor):
        if data.is_floating_point() and not dtype.is_floating_point and not dtype.is_complex:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return data.detach().to(device=device, dtype=dtype)
    if isinstance(data, (list, tuple)):
        return (
            torch.stack([_made(part, dtype, device) for part in data])
            if data
            else torch.empty(0, dtype=dtype, device=device)
        )
    return torch.tensor(data, dtype=dtype, device=device)


def tensor_of_parts(data, *, dtype=None, device=None, requires_grad=False):
    """torch.tensor of numbers among which are tensors of no dimension."""
    made = _made(
        data, _type_of(data) if dtype is None else dtype, torch.get_default_device() if device is None else device
    )
    return made.requires_grad_() if requires_grad else made


def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """torch.Tensor.new_tensor."""
    return torch.tensor(
        data,
        dtype=self.dtype if dtype is None else dtype,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
        pin_memory=pin_memory,
    )


def shape_as_tensor(self):
    """torch._shape_as_tensor."""
    return torch.tensor(list(self.shape), dtype=torch.int64)


def deterministic_state():
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def set_deterministic_state(state):
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])


class Hashed:
    """An object with a given hash."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return self.number


def function_of(method):
    """A method in C as a function with a name and a module."""

    def call(*args, **kwargs):
        return method(*args, **kwargs)

    call.__name__ = call.__qualname__ = f"{method.__objclass__.__name__}_{method.__name__}"
    call.__module__ = __name__
    return call


def renamed_keywords(function):
    """The function with an underscore after its keywords: some are words of Python's."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **{name[:-1]: value for name, value in kwargs.items()})

    call.__module__ = __name__
    return call
