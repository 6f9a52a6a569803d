"""Type hints: complete in what is public, and the extension's stub says what the extension has."""

import ast
import inspect
import typing
from pathlib import Path

import braze
from braze import _C

STUB = ast.parse((Path(__file__).parents[2] / "python/braze/_C.pyi").read_text())


def test_public_functions_say_what_they_take_and_give():
    for name in braze.__all__:
        public = getattr(braze, name)
        if isinstance(public, type):
            public = public.__init__ if "__init__" in vars(public) else lambda: None
        if public.__name__ == "<lambda>":
            continue
        hints = typing.get_type_hints(public)
        missing = [p for p in inspect.signature(public).parameters if p != "self" and p not in hints]
        assert not missing and "return" in hints, f"{name}: no hints for {missing or 'what it returns'}"


def test_the_stub_has_what_the_extension_has():
    told = {n.name for n in STUB.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    assert told == {n for n in dir(_C) if not n.startswith("__")}


def test_the_package_says_that_it_has_hints():
    assert (Path(braze.__file__).parent / "py.typed").exists()
