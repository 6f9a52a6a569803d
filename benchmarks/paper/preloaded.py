"""What every child needs: imported once, by the process that children are forked from. Nothing here starts threads."""

import contextlib

import torch  # noqa: F401
import torch._dynamo  # noqa: F401

from benchmarks.paper import job  # noqa: F401

for library in ("transformers", "timm"):
    with contextlib.suppress(ImportError):
        __import__(library)
