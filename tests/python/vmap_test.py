"""torch.func.vmap inside compiled code: what its library code does beside operators of the graph."""

import pytest
import torch

import braze


def drawn_alike(x, **chunks):
    return torch.func.vmap(lambda row: row + torch.randn(3), randomness="same", **chunks)(x)


@pytest.mark.parametrize("chunks", [{}, {"chunk_size": 2}, {"chunk_size": 4}])
@pytest.mark.parametrize("rng", ["eager", None])
def test_the_same_numbers_in_every_chunk(chunks, rng):
    x = torch.zeros(6, 3)
    compiled = braze.compile(drawn_alike, options={"rng": rng} if rng else {})
    torch.manual_seed(3)
    got = compiled(x, **chunks)
    assert torch.equal(got, got[:1].expand(6, 3))
    if rng:
        torch.manual_seed(3)
        assert torch.equal(got, drawn_alike(x, **chunks))


def test_data_are_not_set_under_vmap():
    def sets(x):
        x.data = torch.ones(3)
        return x

    for run in (lambda x: torch.func.vmap(sets)(x), braze.compile(lambda x: torch.func.vmap(sets)(x))):
        with pytest.raises(RuntimeError, match="mutating directly with `.data`"):
            run(torch.zeros(2, 3))
