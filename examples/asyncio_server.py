"""A server that gathers requests for a moment and runs them as one batch, in a thread, so that the loop of events goes on."""

import asyncio

import torch
from torch import nn

import braze

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2)).eval()
fast = braze.compile(model, dynamic=True)  # batches are of any size


def run(batch):
    with torch.inference_mode():
        return fast(batch)


async def serve(queue):
    while True:
        waiting = [await queue.get()]
        await asyncio.sleep(0.002)
        while not queue.empty() and len(waiting) < 64:
            waiting.append(queue.get_nowait())
        results = await asyncio.to_thread(run, torch.stack([x for x, _ in waiting]))
        for (_, done), y in zip(waiting, results):
            done.set_result(y)


async def ask(queue, x):
    done = asyncio.get_running_loop().create_future()
    await queue.put((x, done))
    return await done


async def main():
    run(torch.zeros(2, 8))  # compile before the first request comes
    queue = asyncio.Queue()
    server = asyncio.create_task(serve(queue))
    questions = torch.randn(100, 8)
    answers = await asyncio.gather(*(ask(queue, x) for x in questions))
    server.cancel()
    torch.testing.assert_close(torch.stack(answers), model(questions))
    print(f"{len(answers)} answers, {braze.counters()['graphs']} graphs")


asyncio.run(main())
