"""Tests of CPython that may fail when compiled, each with its reason."""

EXCEPTIONS = {}
