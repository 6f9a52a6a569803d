"""What compiled code keeps alive, and until when."""

import collections
import functools
import gc
import os
import subprocess
import sys
import weakref

import pytest
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
    f = braze.compile(lambda x: x * config.scale + config.table["shift"])  # noqa: F821
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


# ---- objects that the program replaces or drops ----

KINDS = [(backend, train) for backend in ("braze", "eager") for train in (False, True)]


def storage(tensor):
    return weakref.ref(tensor.untyped_storage())


class Owner(torch.nn.Module):
    """A weight and a buffer of 4 MB."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1024, 1024))
        self.register_buffer("shift", torch.randn(1024, 1024))

    def forward(self, x):
        return (x * self.weight[0] + self.shift[1]).sum()


def run(f, *args, train):
    with torch.set_grad_enabled(train):
        out = f(*args)
        if out.requires_grad:
            out.backward()
    return out.item()


def replace_weight(m):
    m.weight = torch.nn.Parameter(torch.randn(1024, 1024))


def replace_table_entry(m):
    m._parameters["weight"] = torch.nn.Parameter(torch.randn(1024, 1024))


def replace_buffer(m):
    m.shift = torch.randn(1024, 1024)


def replace_registered(m):
    del m.shift
    m.register_buffer("shift", torch.randn(1024, 1024))


def replace_table(m):
    m._parameters = dict(m._parameters, weight=torch.nn.Parameter(torch.randn(1024, 1024)))


@pytest.mark.parametrize("backend, train", KINDS)
@pytest.mark.parametrize(
    "replace", [replace_weight, replace_table_entry, replace_table, replace_buffer, replace_registered]
)
def test_what_a_module_had_is_freed_at_once(replace, backend, train):
    m, x = Owner(), torch.randn(1024)
    c = braze.compile(m, backend=backend)
    for _ in range(6):
        run(c, x, train=train)
        m.zero_grad()
        old = [weakref.ref(t) for t in (m.weight, m.shift)]
        replace(m)
        assert sum(r() is None for r in old) == 1  # with no call in between
        assert abs(run(c, x, train=train) - run(m, x, train=train)) < 0.1


@pytest.mark.parametrize("backend, train", KINDS)
def test_the_memory_that_a_parameter_had_is_freed(backend, train):
    # The object stays, what it holds does not.
    m, x = Owner(), torch.randn(1024)
    c = braze.compile(m, backend=backend)
    for _ in range(3):
        run(c, x, train=train)
        m.zero_grad()
        buffer = torch.randn(1024, 1024)
        memory = storage(buffer)
        m.weight.data = buffer
        del buffer
        run(c, x, train=train)
        m.zero_grad()
        m.weight.data = torch.randn(1024, 1024)
        assert memory() is None


@pytest.mark.parametrize("backend, train", KINDS)
def test_a_module_that_was_an_argument_is_freed_with_all_it_has(backend, train):
    x = torch.randn(1024)
    f = braze.compile(lambda m, x: m(x), backend=backend)
    for _ in range(3):
        m = Owner()
        expected = run(m, x, train=train)
        m.zero_grad()
        assert abs(run(f, m, x, train=train) - expected) < 0.1
        refs = [weakref.ref(o) for o in (m, m.weight, m.shift)] + [storage(m.weight)]
        del m
        gc.collect()
        assert [r() for r in refs] == [None] * 4


@pytest.mark.parametrize("backend, train", KINDS)
def test_a_compiled_module_is_freed_with_what_was_put_into_it(backend, train):
    m, x = Owner(), torch.randn(1024)
    c = braze.compile(m, backend=backend)
    run(c, x, train=train)
    replace_weight(m)
    run(c, x, train=train)
    refs = [weakref.ref(o) for o in (m, m.weight, m.shift, c)]
    del m, c
    gc.collect()
    assert [r() for r in refs] == [None] * 4


class Plain:
    def __init__(self, big):
        self.big = big


class Noted:
    """Tells when it goes."""

    gone = []

    def __init__(self, scale):
        self.scale = scale

    def __del__(self):
        Noted.gone.append(self.scale)


class Slotted:
    __slots__ = ("big",)

    def __init__(self, big):
        self.big = big


def make_closure(big):
    def scaled(x):
        return (x * big).sum()

    return scaled


# A holder of a tensor in a place that the compiled function reads, and how it reads it.
PLACES = {
    "attribute": (Plain, lambda h, x: (x * h.big).sum()),
    "tuple": (lambda big: Plain((1, big)), lambda h, x: (x * h.big[1]).sum()),
    "list": (lambda big: Plain([big]), lambda h, x: (x * h.big[0]).sum()),
    "dict": (lambda big: Plain({"a": {"b": big}}), lambda h, x: (x * h.big["a"]["b"]).sum()),
    "slots": (lambda big: Plain(Slotted(big)), lambda h, x: (x * h.big.big).sum()),
    "closure": (lambda big: Plain(make_closure(big)), lambda h, x: h.big(x)),
    "partial": (lambda big: Plain(functools.partial(torch.mul, big)), lambda h, x: h.big(x).sum()),
    "method": (lambda big: Plain(Plain(big).__eq__), lambda h, x: (x * h.big.__self__.big).sum()),
    "default": (
        lambda big: Plain(collections.defaultdict(list, a=big)),
        lambda h, x: (x * h.big["a"]).sum() + len(h.big["b"]),
    ),
    "ordered": (
        lambda big: Plain(collections.OrderedDict(a=big)),
        lambda h, x: sum((x * v).sum() for v in h.big.values()),
    ),
}


@pytest.mark.parametrize("backend", ["braze", "eager"])
@pytest.mark.parametrize("place", PLACES)
def test_what_was_read_from_a_global_holder(place, backend):
    make, read = PLACES[place]
    x, h = torch.randn(1024), None

    def fn(x):
        return read(h, x)

    f = braze.compile(fn, backend=backend)
    alive = []
    for i in range(5):
        big = torch.full((1024,), float(i))
        alive.append(weakref.ref(big))
        h = make(big)
        del big
        torch.testing.assert_close(f(x), fn(x))
        gc.collect()
        assert [r() is not None for r in alive] == [False] * i + [True]
    h.big = None  # the holder stays, and nobody calls again
    gc.collect()
    assert alive[-1]() is None


@pytest.mark.parametrize("backend", ["braze", "eager"])
@pytest.mark.parametrize("place", PLACES)
def test_what_was_read_from_an_argument(place, backend):
    make, read = PLACES[place]
    x = torch.randn(1024)
    f = braze.compile(lambda h, x: read(h, x), backend=backend)
    for i in range(3):
        big = torch.full((1024,), float(i))
        ref = weakref.ref(big)
        h = make(big)
        del big
        torch.testing.assert_close(f(h, x), read(h, x))
        del h
        gc.collect()
        assert ref() is None


def test_keys_are_freed():
    # As the state of an optimizer is: by the parameter.
    table = {}

    def fn(x):
        return sum((x * p * s["step"]).sum() for p, s in table.items())

    f = braze.compile(fn)
    alive = []
    for i in range(4):
        p = torch.nn.Parameter(torch.full((8,), float(i)))
        alive.append(weakref.ref(p))
        table.clear()
        table[p] = {"step": torch.ones(8)}
        del p
        torch.testing.assert_close(f(torch.ones(8)), fn(torch.ones(8)))
        gc.collect()
        assert [r() is not None for r in alive] == [False] * i + [True]


def test_optimizers_and_their_parameters_are_freed():
    def step(optimizer):
        optimizer.step()

    f = braze.compile(step)
    for _ in range(3):
        m = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adam(m.parameters(), capturable=False)
        for _ in range(3):
            m(torch.ones(2, 8)).sum().backward()
            f(optimizer)
        refs = [weakref.ref(o) for o in (m, m.weight, optimizer, *(s["exp_avg"] for s in optimizer.state.values()))]
        del m, optimizer
        gc.collect()
        assert [r() for r in refs] == [None] * len(refs)


@pytest.mark.parametrize("backend", ["braze", "eager"])
def test_finalizers_run_when_they_do_in_plain_python(backend):
    x = torch.ones(4)
    f = braze.compile(lambda o, x: x * o.scale, backend=backend)
    Noted.gone.clear()
    for i in range(4):
        o = Noted(float(i))
        assert torch.equal(f(o, x), x * i)
        del o
        assert Noted.gone == [float(j) for j in range(i + 1)]


def test_classes_of_arguments_are_freed():
    f = braze.compile(lambda o, x: o.scaled(x))
    for i in range(3):

        class Local:
            big = torch.full((8,), float(i))

            def scaled(self, x):
                return x * self.big

        o = Local()
        assert torch.equal(f(o, torch.ones(8)), Local.big)
        refs = [weakref.ref(o), weakref.ref(Local), weakref.ref(Local.big)]
        del o, Local
        gc.collect()
        assert [r() for r in refs] == [None] * 3


def test_a_finalizer_may_call_the_compiled_function():
    # In the middle of the removal of the entry that it was compiled for.
    f, calls = braze.compile(lambda m, x: m(x)), []

    class Calls(torch.nn.Module):
        def forward(self, x):
            return x * 2

        def __del__(self):
            calls.append(f(torch.nn.ReLU(), torch.ones(2)).tolist())

    for _ in range(3):
        m = Calls()
        assert f(m, torch.ones(2)).tolist() == [2, 2]
        del m
        gc.collect()
    assert calls == [[1, 1]] * 3


def test_a_finalizer_may_reset():
    f = braze.compile(lambda m, x: m(x))

    class Resets(torch.nn.Module):
        def forward(self, x):
            return x * 2

        def __del__(self):
            braze.reset()

    for _ in range(3):
        m, other = Resets(), torch.nn.Linear(2, 2)
        assert f(m, torch.ones(2)).tolist() == [2, 2]
        torch.testing.assert_close(f(other, torch.ones(2)), other(torch.ones(2)))
        del m
        gc.collect()
        torch.testing.assert_close(f(other, torch.ones(2)), other(torch.ones(2)))


def test_an_object_that_comes_back_is_seen():
    # Its end was told, then its finalizer kept it.
    kept = []

    class Returns(torch.nn.Module):
        scale = 2.0

        def forward(self, x):
            return x * self.scale

        def __del__(self):
            kept.append(self)

    f, m = braze.compile(lambda m, x: m(x)), Returns()
    m.itself = [m]
    assert f(m, torch.ones(2)).tolist() == [2, 2]
    del m
    gc.collect()
    (m,) = kept
    m.scale = 3.0
    assert f(m, torch.ones(2)).tolist() == [3, 3]


def test_another_object_at_the_same_address_is_another():
    class Scale:
        def __init__(self, by):
            self.by = by

    class M(torch.nn.Module):
        def forward(self, x):
            return x * self.scale.by

    m = M()
    f = braze.compile(m)
    for by in (1.0, 2.0, 3.0, 4.0) * 5:
        m.scale = None
        m.scale = Scale(by)  # often where the one before was
        assert f(torch.ones(2)).tolist() == [by, by]


def test_entries_that_no_call_can_match_do_not_count(capfd):
    # More modules than one place has entries for.
    f = braze.compile(lambda m, x: m(x))
    for i in range(80):
        assert f(torch.nn.Hardtanh(0.0, float(i + 1)), torch.full((2,), 100.0)).tolist() == [i + 1, i + 1]
    assert "runs uncompiled" not in capfd.readouterr().err


def test_nor_do_those_that_wait_for_the_collector(capfd):
    f = braze.compile(lambda m, x: m(x))
    gc.collect()
    threshold = gc.get_threshold()
    gc.set_threshold(10**9)
    try:
        for i in range(150):
            m = torch.nn.Hardtanh(0.0, float(i + 1))
            m.itself = [m]
            assert f(m, torch.full((2,), 1000.0)).tolist() == [i + 1, i + 1]
    finally:
        gc.set_threshold(*threshold)
    assert "runs uncompiled" not in capfd.readouterr().err


def test_a_recompilation_names_what_is_gone():
    code = """
import torch, braze
m = torch.nn.Linear(2, 2)
f = braze.compile(m)
f(torch.ones(2))
m.weight = torch.nn.Parameter(torch.ones(2, 2))
f(torch.ones(2))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "BRAZE_LOGS": "recompiles"}, capture_output=True, text=True
    )
    assert "L['self'].weight is gone" in done.stderr, done.stderr


def test_arrays_are_freed():
    numpy = pytest.importorskip("numpy")
    f = braze.compile(lambda a: torch.from_numpy(a) * 2 if isinstance(a, numpy.ndarray) else a, fullgraph=True)
    array = numpy.ones(4, dtype=numpy.float32)
    f(array)
    ref = weakref.ref(array)
    del array
    gc.collect()
    assert ref() is None
