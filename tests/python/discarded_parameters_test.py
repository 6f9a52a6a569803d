"""options={"freezing": True, "freezing_discard_parameters": True}: what no call reads any more gives back its memory."""

import copy
import os
import threading

import pytest
import torch
from torch import nn

import braze

OPTIONS = {"freezing": True, "freezing_discard_parameters": True}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.words = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 24)

    def forward(self, x, i):
        return self.head(self.image(x).mean((2, 3)) + self.words(i))


def inputs(n=2):
    return torch.randn(n, 3, 20, 20), torch.arange(n)


def kept(net):
    return {name for name, t in net.state_dict().items() if t.untyped_storage().nbytes()}


@pytest.fixture
def discarded():
    torch.manual_seed(0)
    net = Net().eval()
    whole, args = copy.deepcopy(net), inputs()
    compiled = braze.compile(net, fullgraph=True, options=OPTIONS)
    with torch.no_grad():
        compiled(*args)
    return net, whole, compiled


def test_results_stay(discarded):
    net, whole, compiled = discarded
    with torch.no_grad():
        for _ in range(5):
            args = inputs()
            torch.testing.assert_close(compiled(*args), whole(*args), rtol=1e-4, atol=1e-5)


def test_what_is_given_back(discarded):
    net, _, _ = discarded
    assert "words.weight" in kept(net)  # which each call reads
    assert not any(name.startswith("image.0") for name in kept(net))  # folded, and packed
    assert net.image[0].weight.shape == (16, 3, 3, 3)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="nothing is packed")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="memory given back is kept to find its users")
def test_memory_of_the_process():
    """A packed weight takes as much as the parameter did."""
    width, megabyte = 4096, 1 << 20
    grown = {}
    for discard in (False, True):
        net = nn.Linear(width, width).eval()
        net.weight.data.normal_()
        compiled = braze.compile(net, fullgraph=True, options={**OPTIONS, "freezing_discard_parameters": discard})
        x, resident = torch.randn(512, width), lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
        with torch.no_grad():
            net(x)
            before = resident()
            for _ in range(3):
                compiled(x)
        grown[discard] = (resident() - before) / megabyte
    size = width * width * 4 / megabyte
    assert grown[False] - grown[True] > 0.8 * size


def test_off_by_default():
    net = Net().eval()
    before = kept(net)
    compiled = braze.compile(net, fullgraph=True, options={"freezing": True})
    with torch.no_grad():
        for _ in range(3):
            compiled(*inputs())
    assert kept(net) == before


def test_eager_says_that_it_is_gone(discarded):
    net, _, _ = discarded
    with torch.no_grad(), pytest.raises(RuntimeError, match="has given back the memory of this parameter"):
        net(*inputs())
    with pytest.raises(RuntimeError, match="has given back the memory of this parameter"):
        net.load_state_dict(Net().state_dict())


def test_a_change_that_needs_what_is_gone(discarded):
    net, _, compiled = discarded
    with torch.no_grad():
        net.words.weight.mul_(2)
        with pytest.raises(
            RuntimeError, match="freezing_discard_parameters has given back the memory of this parameter"
        ):
            compiled(*inputs())


def test_parameters_loaded_anew(discarded):
    net, _, compiled = discarded
    other = Net().eval()
    net.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    with torch.no_grad():
        for _ in range(3):
            args = inputs()
            torch.testing.assert_close(compiled(*args), other(*args), rtol=1e-4, atol=1e-5)


def test_other_sizes_of_what_is_gone():
    torch.manual_seed(0)
    net = Net().eval()
    compiled = braze.compile(net, fullgraph=True, options=OPTIONS, dynamic=False)
    with torch.no_grad():
        compiled(*inputs(2))
        with pytest.raises(RuntimeError, match="has given back"):
            compiled(*inputs(5))
        compiled(*inputs(2))


def test_memory_that_others_look_at_stays():
    net = Net().eval()
    look = net.image[0].weight[0]
    was = look.detach().clone()
    compiled = braze.compile(net, fullgraph=True, options=OPTIONS)
    with torch.no_grad():
        compiled(*inputs())
        compiled(*inputs())
    assert torch.equal(look, was)


def test_from_threads():
    torch.manual_seed(0)
    net = Net().eval()
    whole = copy.deepcopy(net)
    compiled = braze.compile(net, fullgraph=True, options=OPTIONS)
    args = inputs()
    with torch.no_grad():
        want = whole(*args)
    got, start = [], threading.Barrier(4)

    def work():
        start.wait()
        with torch.no_grad():
            for _ in range(20):
                got.append(compiled(*args))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 80
    for g in got:
        torch.testing.assert_close(g, want, rtol=1e-4, atol=1e-5)


def test_with_timed_calls_nothing_is_given_back():
    net = Net().eval()
    before = kept(net)
    compiled = braze.compile(net, fullgraph=True, options={**OPTIONS, "guard_speed": True})
    with torch.no_grad():
        for _ in range(20):
            compiled(*inputs())
    assert kept(net) == before
