"""What the extension was built for: written by the build."""

PYTORCH: str  # its minor version, as "2.13"
PYTHON: str  # CPython's, as "3.12"
