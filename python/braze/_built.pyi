"""What the extension was built for, and what it can be built for: written by the build."""

PYTORCH: str  # a minor version, as "2.13"
VERSIONS: tuple[str, ...]  # of PyTorch, oldest first
PYTHON: str  # CPython's, as "3.12"
