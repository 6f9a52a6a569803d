"""What compiled code keeps alive, and until when."""

import gc
import weakref

import torch

import braze


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.fc(x)) + 1


def tensors():
    gc.collect()
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())


@torch.no_grad()
def test_a_deleted_module_is_freed():
    m = Block()
    c = braze.compile(m)
    x = torch.randn(4, 16)
    torch.testing.assert_close(c(x), m(x))
    refs = [weakref.ref(m), weakref.ref(m.fc.weight), weakref.ref(c)]
    del m, c
    gc.collect()
    assert [r() for r in refs] == [None, None, None]


@torch.no_grad()
def test_a_compiled_function_on_its_own_module_is_freed():
    m = Block()
    m.fast = braze.compile(m.forward)
    x = torch.randn(4, 16)
    torch.testing.assert_close(m.fast(x), m(x))
    ref, weight = weakref.ref(m), weakref.ref(m.fc.weight)
    del m
    gc.collect()
    assert ref() is None and weight() is None


def test_a_cycle_through_what_was_guarded_is_freed():
    class Config:
        scale = 2.0

    config = Config()
    config.table = {"shift": 1.0}
    f = braze.compile(lambda x: x * config.scale + config.table["shift"])
    config.f = f
    assert torch.equal(f(torch.ones(3)), torch.full((3,), 3.0))
    refs = [weakref.ref(config), weakref.ref(f)]
    del f, config, Config
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_a_backend_that_refers_back_is_freed():
    class Backend:
        def __call__(self, gm, inputs):
            return gm.forward

    backend = Backend()
    backend.f = braze.compile(lambda x: x + 1, backend=backend)
    assert torch.equal(backend.f(torch.ones(3)), torch.full((3,), 2.0))
    ref = weakref.ref(backend)
    del backend
    gc.collect()
    assert ref() is None


@torch.no_grad()
def test_collections_leave_living_entries_alone():
    m = Block()
    m.fast = braze.compile(m.forward)
    x = torch.randn(4, 16)
    want = m(x)
    for _ in range(3):
        torch.testing.assert_close(m.fast(x), want)
        gc.collect()
    event = braze.compile(lambda a: a * 2)
    for n in (3, 4, 5):
        assert torch.equal(event(torch.ones(n)), torch.full((n,), 2.0))
        gc.collect()


@torch.no_grad()
def test_fakes_die_with_the_capture():
    m, x = Block(), torch.randn(4, 16)
    before = tensors()
    c = braze.compile(m)
    c(x)
    assert tensors() == before


@torch.no_grad()
def test_reset_frees_what_was_guarded():
    class Config:
        scale = 2.0

    config = Config()
    f = braze.compile(lambda x, c: x * c.scale)
    f(torch.ones(3), config)
    ref = weakref.ref(config)
    del config
    braze.reset()
    gc.collect()
    assert ref() is None


@torch.no_grad()
def test_buffers_of_outputs_die_with_them():
    m, x = Block(), torch.randn(4, 16)
    c = braze.compile(m)
    refs = [weakref.ref(c(x)) for _ in range(3)]
    assert [r() for r in refs] == [None] * 3
