"""What the extensions were built for, and what they can be built for: written by the build."""

PYTORCH: tuple[str, ...]  # minor versions, as "2.13", oldest first: each has its extension in _torch2_13/
VERSIONS: tuple[str, ...]  # of PyTorch, oldest first
PYTHON: str  # CPython's, as "3.12"
