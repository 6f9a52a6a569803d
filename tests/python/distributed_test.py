"""torch.distributed in compiled functions: collectives run, between graphs, and what asks for the group sees it come and go."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import braze


def work(rank, size, folder, results):
    def reduced(x):
        y = x * 2
        if dist.is_initialized():
            dist.all_reduce(y)
        return y + 1

    def gathered(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.stack(parts) * (dist.get_rank() + 1)

    compiled, x = braze.compile(reduced), torch.ones(3) * (rank + 1)
    seen = [compiled(x)]
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=size)
    seen += [compiled(x), reduced(x), braze.compile(gathered)(x), gathered(x)]
    report = braze.explain(reduced, x)
    dist.destroy_process_group()
    seen.append(compiled(x))
    results[rank] = [t.tolist() for t in seen], str(report).splitlines()[0]


def test_collectives(tmp_path):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(work, args=(2, str(tmp_path), results), nprocs=2)
        for rank in range(2):
            (alone, together, eager, gathered, gathered_eager, alone_again), report = results[rank]
            assert alone == alone_again == [2.0 * (rank + 1) + 1] * 3
            assert together == eager == [7.0] * 3
            assert gathered == gathered_eager
            assert report.startswith("2 graphs, 1 graph breaks"), report
