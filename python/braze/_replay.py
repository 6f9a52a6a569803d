"""Runs a captured program uncompiled on random values that are given."""

from torch import Tag
from torch.utils._python_dispatch import TorchDispatchMode


class _Replay(TorchDispatchMode):
    """Random operators give these values, in order; one in place puts them into its operand."""

    def __init__(self, values):
        super().__init__()
        self.values = iter(values)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        value = next(self.values, None)
        name = func._schema.name
        if value is None:
            raise RuntimeError(f"braze: {name} draws more random values than the compiled region did")
        if name.startswith("aten::rrelu_with_noise"):
            args[1].copy_(value)
            return args[0].mul_(value) if name.endswith("_") else args[0] * value
        if name.endswith("_"):
            return args[0].copy_(value)
        if name == "aten::native_dropout":
            return args[0] * value / (1 - args[1]), value
        return value


def run(module, args, values):
    with _Replay(values):
        return module(*args)
