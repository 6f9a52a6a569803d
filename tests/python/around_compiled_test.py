"""What other tools of PyTorch's, and the program's own classes, do with compiled code."""

import pytest
import torch

import braze


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        braze.compile,
        braze.compile_module_,
        lambda m: torch.nn.Sequential(braze.compile(m)),
        lambda m: setattr(m, "forward", braze.compile(m.forward)) or m,
    ],
    ids=["module", "in place", "part", "forward"],
)
def test_torch_jit_trace_records_compiled_code(made, warm):
    module, x = made(torch.nn.Linear(3, 3)), torch.randn(2, 3)
    if warm:
        module(x)
    traced = torch.jit.trace(module, x)
    assert torch.equal(traced(x * 2), module(x * 2))


@pytest.fixture
def swaps():
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def test_tensors_that_compiled_code_knows_are_swapped(swaps):
    module, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    compiled = braze.compile(module)
    before = compiled(x).detach()
    weight = module.weight
    module.double()
    assert module.weight is weight and weight.dtype == torch.float64
    torch.testing.assert_close(compiled(x.double()), before.double())
    a, b = torch.ones(2), torch.zeros(3)
    fn = braze.compile(lambda x: x + a)
    assert fn(torch.ones(1)).tolist() == [2, 2]
    torch.utils.swap_tensors(a, b)
    assert fn(torch.ones(1)).tolist() == [1, 1, 1]


def test_classes_that_watch_their_subclasses():
    class Tagged(torch.nn.Module):
        seen = []

        def __init_subclass__(cls, *, tag, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.seen.append(tag)

        def forward(self, x):
            return x + 1

    class Tag(Tagged, tag=3):
        pass

    class Final(type):
        def __new__(meta, name, bases, body):
            if any(isinstance(base, Final) for base in bases):
                raise TypeError("final")
            return super().__new__(meta, name, bases, body)

    class Last(torch.nn.Module, metaclass=Final):
        def forward(self, x):
            return x + 1

    for module in (Tag(), Last()):
        compiled = braze.compile(module)
        assert compiled(torch.ones(1)).item() == 2 and isinstance(compiled, type(module))
        assert not isinstance(module, type(compiled))
    assert Tagged.seen == [3]
