"""BRAZE_CPU: kernels with the instructions of older CPUs, on every machine that has them; code of one CPU is not found by another.
BRAZE_CPU_CACHE: kernels as those of tensors that no cache holds."""

import functools
import json
import os
import pathlib
import platform
import subprocess
import sys

import pytest
from cpu_cases import NAMES

import braze  # noqa: F401

HERE = pathlib.Path(__file__).parent
LACKS = "this CPU does not have these instructions"


def python(cpu, *arguments, **environment):
    env = {
        **os.environ,
        "BRAZE_CPU": cpu,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        **environment,
    }
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=1200)


@functools.lru_cache
def has(cpu):
    done = python(cpu, "-c", "import braze")
    assert done.returncode == 0 or LACKS in done.stderr, done.stderr
    return done.returncode == 0


@functools.lru_cache
def results(cpu, **environment):
    if not has(cpu):
        pytest.skip(f"{cpu}: {LACKS}")
    done = python(cpu, str(HERE / "cpu_cases.py"), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cpu", ["avx2", "avx512"])
def test_agrees_with_eager(cpu, name):
    assert results(cpu)[name] == "", results(cpu)[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cpu", ["avx2", "avx512"])
def test_agrees_with_eager_without_a_cache(cpu, name):
    found = results(cpu, BRAZE_CPU_CACHE="1024")
    assert found[name] == "", found[name]


@pytest.mark.parametrize("value", ["0", "-1", "1k", "many"])
def test_a_cache_of_no_size_is_refused(value):
    done = python("host", "-c", "import braze", BRAZE_CPU_CACHE=value)
    assert done.returncode != 0
    assert f"BRAZE_CPU_CACHE: a number of bytes from 1 on is expected, not '{value}'" in done.stderr


def test_an_unknown_cpu_is_refused():
    done = python("avx3", "-c", "import braze")
    assert done.returncode != 0 and "BRAZE_CPU: no CPU 'avx3'; accepted: avx2, avx512, neon, host" in done.stderr


def test_a_cpu_of_another_architecture_is_refused():
    other = "avx2" if platform.machine() == "aarch64" else "neon"
    done = python(other, "-c", "import braze")
    assert done.returncode != 0 and f"BRAZE_CPU={other}: {LACKS}" in done.stderr


CHILD = "import torch, braze; braze.compile(lambda x: torch.tanh(x) * 2)(torch.randn(37))"


def test_cached_code_is_of_its_cpu(tmp_path):
    """Each CPU compiles into the folder once, and finds its own there, only."""
    cpus = [c for c in ("host", "avx2", "avx512") if has(c)]
    counts = []
    for cpu in cpus * 2:
        done = python(cpu, "-c", CHILD, BRAZE_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        counts.append(len(list(tmp_path.glob("*.o"))))
    own = counts[0]
    assert own > 0 and counts == [*(own * (i + 1) for i in range(len(cpus))), *[own * len(cpus)] * len(cpus)]
