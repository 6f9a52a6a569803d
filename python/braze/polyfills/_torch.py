"""Contexts and functions of torch."""

import torch


class InferenceMode:
    """In place of the guard of torch.inference_mode."""

    def __init__(self, mode=True):
        self.mode = mode

    def __enter__(self):
        self.grad = torch.is_grad_enabled()
        self.before = set_inference(self.mode)
        torch._C._set_grad_enabled(not self.mode)

    def __exit__(self, *exc):
        torch._C._set_grad_enabled(self.grad)
        set_inference(self.before)


def set_inference(mode):
    return mode


def torch_function_at_least(state):
    return state


def torch_function_back(state):
    pass


class DisableTorchFunctionSubclass:
    """In place of torch._C.DisableTorchFunctionSubclass."""

    state = 1

    def __enter__(self):
        self.before = torch_function_at_least(self.state)

    def __exit__(self, *exc):
        torch_function_back(self.before)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """In place of torch._C.DisableTorchFunction."""

    state = 2


class CapturedMode:
    """On PyTorch's stack of modes of torch functions while capturing, in place of the user's."""

    def __init__(self, function):
        self.function = function

    def __torch_function__(self, *args):
        return self.function(*args)


def as_class(tensor, cls):
    if type(tensor) is cls:
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(cls)


class NoEffect:
    """In place of contexts that only matter to who watches the program run."""

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def __call__(self, fn):
        return fn


def call_without_grad(fn, *args, **kwargs):
    with torch.no_grad():
        return fn(*args, **kwargs)


def one_hot(tensor, num_classes=-1):
    if num_classes < 0:
        return torch.ops.aten.one_hot(tensor, num_classes)
    classes = torch.arange(num_classes, device=tensor.device)
    if tensor.device.type == "cpu":
        if tensor.numel() > 0:
            torch.ops.aten._assert_async.msg(tensor.min() >= 0, "Class values must be non-negative.")
            torch.ops.aten._assert_async.msg(
                tensor.max() < num_classes, "Class values must be smaller than num_classes."
            )
    else:  # looked up among the classes, so that one which is none of them is an error of the run
        tensor = classes.gather(0, tensor.reshape(-1)).reshape(tensor.shape)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64).contiguous()


def group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    groups = {}
    for i, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensorlistlist], [])
        lists, indices = groups[key]
        for group, tensors in zip(lists, tensorlistlist):
            if tensors:
                group.append(tensors[i])
        if with_indices:
            indices.append(i)
    return groups


def apply_of(cls):
    """How a torch-level graph calls an autograd.Function."""

    def apply(*args, **kwargs):
        return cls.apply(*args, **kwargs)

    apply.__name__ = apply.__qualname__ = cls.__name__
    apply.__module__ = "braze_functions"
    return apply


def is_positive_definite(self, value):
    """torch.distributions.constraints.positive_definite.check, without a branch on whether all are symmetric."""
    symmetric = super(type(self), self).check(value)
    return torch.where(symmetric.all(), torch.linalg.cholesky_ex(value).info.eq(0), symmetric)


def set_masked(x, mask, value):
    """`x[mask] = value` of a value that wants a gradient: as a choice, whose backward has sizes that don't depend on the mask."""
    rest = x.shape[mask.dim() :]
    lead = 0  # dimensions of one element that only stand before the others, which an assignment does not see
    while lead < value.dim() and value.shape[lead] == 1:
        lead += 1
    if lead:
        value = value.view(value.shape[lead:])
    if (
        x.shape[: mask.dim()] == mask.shape
        and value.dim() <= len(rest)
        and value.shape == rest[len(rest) - value.dim() :]
    ):
        x.copy_(torch.where(mask.reshape(mask.shape + (1,) * len(rest)), value, x))
    else:
        torch.Tensor.index_put_(x, (mask,), value)


def device_capability(device=None):
    return _capability(_device_number(device))


def device_name(device=None):
    return _name(_device_number(device))


def _device_number(device):
    """The number of a device of CUDA; what is none of them as it is."""
    if isinstance(device, str):
        device = torch.device(device)
    if device is None or isinstance(device, torch.device) and device.type == "cuda" and device.index is None:
        return torch.cuda.current_device()
    return device.index if isinstance(device, torch.device) and device.type == "cuda" else device


def _capability(device):
    return torch.cuda.get_device_capability(device)


def _name(device):
    return torch.cuda.get_device_name(device)


# A device stays what it is.
_capability._dynamo_marked_constant = _name._dynamo_marked_constant = True
