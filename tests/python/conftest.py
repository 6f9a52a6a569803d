import os
import pathlib
import sys

os.environ.setdefault("BRAZE_STRICT", "1")
os.environ.setdefault("BRAZE_VERIFY", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))  # benchmarks.suites: the models

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    """Every test starts with empty caches of compiled code and the same random numbers."""
    import braze

    braze.reset()
    torch.manual_seed(0)
    yield
    braze.reset()
