"""Runs methods of CPython's own tests, one after the other, in this process; see cpython_suite_test.py.

usage: cpython_worker.py {plain,compiled} RESULTS ID...     (ID: test_module or test_module.Class.method)

Appends to RESULTS a line "ID start" before and "ID ok|skip|fail text" after each test, so that a crash is seen. A test that is in
RESULTS already is not run again.
"""

import contextlib
import faulthandler
import functools
import importlib
import io
import os
import sys
import types
import unittest
import warnings

SKIP = set(os.environ.get("BRAZE_SUITE_SKIP", "").split())
LIMIT = float(os.environ.get("BRAZE_SUITE_LIMIT", "40"))  # seconds for one test


def flat(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flat(t)
        else:
            yield t


def tests_of(name):
    module, *rest = name.split(".")
    loaded = importlib.import_module("test." + module)
    if rest:
        return [getattr(loaded, rest[0])(rest[1])]
    found = []
    for attribute in sorted(vars(loaded)):
        cls = getattr(loaded, attribute)
        if isinstance(cls, type) and issubclass(cls, unittest.TestCase):
            found += flat(unittest.defaultTestLoader.loadTestsFromTestCase(cls))
    return found


def run(test, compiled):
    name = test._testMethodName
    if compiled:
        import braze

        function = getattr(type(test), name)
        if isinstance(function, types.FunctionType):
            setattr(
                test,
                name,
                functools.partial(
                    braze.compile(function, backend=os.environ.get("BRAZE_SUITE_BACKEND", "eager")), test
                ),
            )
    result = unittest.TestResult()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        test.run(result)
    if result.skipped:
        return "skip", ""
    bad = result.errors + result.failures
    return ("fail", bad[0][1]) if bad else ("ok", "")


def main(mode, path, *names):
    compiled = mode == "compiled"
    done = set()
    if os.path.exists(path):
        with open(path) as f:
            done = {line.split(" ", 1)[0] for line in f}
    with open(path, "a", buffering=1) as out:
        for name in names:
            current = None
            for test in tests_of(name):
                identity = test.id().removeprefix("test.")
                if identity in done or identity in SKIP:
                    continue
                if current is not type(test):
                    if current:
                        current.tearDownClass()
                    current = type(test)
                    current.setUpClass()
                out.write(f"{identity} start\n")
                faulthandler.dump_traceback_later(LIMIT, exit=True)
                try:
                    status, text = run(test, compiled)
                except BaseException as e:  # raised by the machinery of unittest, not by the test
                    status, text = "fail", repr(e)
                faulthandler.cancel_dump_traceback_later()
                if compiled:
                    import braze

                    braze.reset()
                out.write(f"{identity} {status} {text!r}\n")
        out.write("all done\n")
    out.close()
    os._exit(0)  # threads and finalizers that tests leave behind


main(*sys.argv[1:])
