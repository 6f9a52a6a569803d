"""A server that compiles once and then forks: its workers share the compiled code, and each answers its part of the requests."""

import os
import socket
import struct

import torch
from torch import nn

import braze

torch.manual_seed(0)
torch.set_num_threads(1)  # one per worker; and no pool of threads in the parent, which a fork would leave behind
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)).eval()
fast = braze.compile(model)


def request(size):
    return torch.arange(16.0 * size).reshape(size, 16) / 100


def serve(listener):
    """Answers until it is told 0: the worker's number, captures that it made itself, and the rows."""
    before = braze.counters()["captures"]
    while True:
        connection, _ = listener.accept()
        with connection:
            (size,) = struct.unpack("i", connection.recv(4))
            if size == 0:
                return
            with torch.inference_mode():
                rows = fast(request(size))
            head = struct.pack("ii", os.getpid(), braze.counters()["captures"] - before)
            connection.sendall(head + rows.numpy().tobytes())


def ask(address, size):
    with socket.create_connection(address) as connection:
        connection.sendall(struct.pack("i", size))
        with connection.makefile("rb") as answer:
            return answer.read()


if __name__ == "__main__":
    with torch.inference_mode():
        for size in (2, 3):  # two sizes: what is compiled serves all from there on
            fast(request(size))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        workers = []
        for _ in range(2):
            workers.append(os.fork())
            if not workers[-1]:
                serve(listener)
                os._exit(0)
        address, told = listener.getsockname(), set()
        for i in range(200):
            size = 2 + i % 9
            data = bytearray(ask(address, size))
            worker, captures = struct.unpack("ii", data[:8])
            assert captures == 0  # found, not compiled again
            told.add(worker)
            rows = torch.frombuffer(data, dtype=torch.float32, offset=8).reshape(size, 4)
            torch.testing.assert_close(rows, model(request(size)))
        for _ in workers:
            ask(address, 0)
        for worker in workers:
            assert os.waitpid(worker, 0)[1] == 0
    print(f"200 answers of {len(told)} workers")
