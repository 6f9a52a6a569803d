"""Tensors and storages that PyTorch makes of memory which no operator sees, within compiled code."""

import numpy as np
import pytest
import torch

import braze


@pytest.mark.parametrize(
    "fn",
    [
        lambda m: torch.frombuffer(m, dtype=torch.float32),
        lambda m: torch.frombuffer(m, dtype=torch.float32) * 2,
        lambda m: torch.asarray(m) + 1,
    ],
)
def test_tensors_on_buffers(fn):
    compiled = braze.compile(fn)
    array = np.arange(5, dtype=np.float32)
    for given in (memoryview(array), memoryview(array), memoryview(np.ones(3, dtype=np.float32))):
        assert torch.equal(compiled(given), fn(given))
        array += 1


@pytest.mark.parametrize(
    "fn",
    [
        torch.Tensor.untyped_storage,
        lambda x: x._typed_storage()._untyped_storage,
        lambda x: x.storage(),
        lambda x: (x.view(-1), x.untyped_storage())[1],
    ],
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_are_the_tensors_own(fn):
    x = torch.ones(3)
    storage = braze.compile(lambda t: fn(t))(x)
    assert storage.data_ptr() == x.data_ptr() and storage.nbytes() == 12


def test_loading(tmp_path):
    def load(path):
        return {name: value * 2 for name, value in torch.load(path).items()}

    saved = {"a": torch.randn(3), "b": torch.randn(2, 2), "c": torch.arange(4)}
    torch.save(saved, tmp_path / "saved")
    compiled = braze.compile(load)
    for _ in range(2):
        got = compiled(tmp_path / "saved")
        assert all(torch.equal(got[name], value * 2) for name, value in saved.items())


def cyclic():
    z = [0]
    z.append(z)
    return z


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.cat, torch.zeros])
def test_a_list_that_holds_itself(make):
    def inside():
        z = [0]
        z.append(z)
        return make(z)

    for run, args in ((braze.compile(inside), ()), (braze.compile(lambda z: make(z)), (cyclic(),))):
        with pytest.raises(TypeError) as got:
            run(*args)
        with pytest.raises(TypeError) as wanted:
            make(cyclic())
        assert str(got.value) == str(wanted.value)


def test_very_long_lists_and_loops():
    def fn(numbers, x):
        a = torch.tensor(numbers).sum() + x.sum()
        b = sum(float(v) for v in np.asarray(numbers)[:20_000])
        for row in x:
            a = a + row
        return a, b

    numbers = [float(i % 7) for i in range(30_000)]
    x = torch.ones(20_000)
    got, want = braze.compile(fn)(numbers, x), fn(numbers, x)
    assert got[0] == want[0] and got[1] == want[1]
    with pytest.raises(braze.Unsupported, match="more than 10000 elements"):
        braze.compile(fn, fullgraph=True)(numbers, x)
