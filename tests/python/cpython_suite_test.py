"""CPython's own tests of the language, each test method compiled: what passes in plain Python must pass compiled.

The methods run in child processes, so that a crash or a hang is the failure of one test. What fails compiled is run again
in plain Python; only what passes there counts.
"""

import fnmatch
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
from cpython_exceptions import EXCEPTIONS, PATTERNS

WORKER = pathlib.Path(__file__).with_name("cpython_worker.py")

GROUPS = {
    "containers": "test_list test_tuple test_dict test_dictviews test_defaultdict",
    "sets": "test_set",
    "numbers": "test_int test_float test_complex test_bool",
    "library": "test_operator test_contextlib test_collections test_userlist test_ordered_dict test_types test_class test_patma test_exception_group",
    "syntax": "test_augassign test_binop test_compare test_contains test_decorators test_isinstance test_keywordonlyarg test_named_expressions test_pow "
    "test_unary test_unpack_ex test_baseexception test_exception_variations test_positional_only_arg test_slice test_enumerate test_property test_super "
    "test_bisect test_funcattrs test_string test_listcomps test_fstring test_range test_dataclasses test_copy",
    "programs": "test_argparse test_optparse test_urlparse test_csv test_graphlib test_heapq test_math",
    "more": "test_deque test_userdict test_yield_from test_genericclass test_array test_generator_stop test_subclassinit test_richcmp test_hash test_index",
    "flow": "test_scope test_call test_generators test_with test_raise test_iter test_exceptions",
}


def run(mode, names, results):
    """Every test of these names, however many crash."""
    slow = " ".join(k for k, reason in EXCEPTIONS.items() if reason.startswith("slow"))
    env = dict(os.environ, BRAZE_STRICT="1", BRAZE_SUITE_SKIP=slow)
    for _ in range(40):
        subprocess.run(
            [sys.executable, str(WORKER), mode, str(results), *names],
            cwd=results.parent,
            env=env,
            capture_output=True,
            timeout=900,
        )
        lines = results.read_text(errors="replace").splitlines() if results.exists() else []
        if lines and lines[-1] == "all done":
            break
        if not lines or not lines[-1].endswith(" start"):
            pytest.fail(f"the worker does not start: {names}")
        with results.open("a") as f:
            f.write(lines[-1].removesuffix(" start") + " crash\n")
    outcome = {}
    for line in results.read_text(errors="replace").splitlines():
        identity, _, rest = line.partition(" ")
        outcome[identity] = rest
    return outcome


@pytest.mark.parametrize("group", GROUPS)
def test_group(group, tmp_path):
    names = [n for n in GROUPS[group].split() if importlib.util.find_spec("test." + n)]
    if not names:
        pytest.skip("this Python came without its tests")
    compiled = run("compiled", names, tmp_path / "compiled")
    ran = [k for k, v in compiled.items() if v.split(" ", 1)[0] in ("ok", "fail", "crash")]
    assert len(ran) > 20, "hardly anything ran"
    suspects = [k for k in ran if not compiled[k].startswith("ok")]
    plain = run("plain", suspects, tmp_path / "plain") if suspects else {}
    bad = [k for k in suspects if plain.get(k, "").startswith("ok")]
    unknown = [
        f"{k}: {compiled[k][-300:]}"
        for k in bad
        if k not in EXCEPTIONS and not any(fnmatch.fnmatch(k, p) for p in PATTERNS)
    ]
    assert not unknown, f"{len(unknown)} tests fail only when compiled:\n" + "\n".join(unknown)
