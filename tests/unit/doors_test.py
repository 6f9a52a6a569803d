"""A folder that includes what its row does not name is not built (tools/check_doors.py)."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]


class Doors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name) / "braze"
        cls.root.mkdir()
        for part in ("src", "cmake", "tools", "tests"):
            shutil.copytree(ROOT / part, cls.root / part, ignore=shutil.ignore_patterns("python", "filetests", "fuzz"))
        shutil.copytree(ROOT / "python", cls.root / "python")
        for file in ("CMakeLists.txt", "ARCHITECTURE.md"):
            shutil.copy(ROOT / file, cls.root / file)
        # Without LLVM and PyTorch there are fewer folders, and the table has more than the rows.
        flags = ["-DBRAZE_LLVM=OFF", "-DBRAZE_TORCH=OFF", "-DBRAZE_TESTS=OFF", "-G", "Ninja"]
        subprocess.run(["cmake", "-S", cls.root, "-B", cls.root / "build", *flags], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def build(self, target):
        done = subprocess.run(
            ["cmake", "--build", self.root / "build", "--target", target], capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    def changed(self, file, old, new):
        path = self.root / file
        before = path.read_text()
        self.assertIn(old, before)
        path.write_text(before.replace(old, new, 1))
        self.addCleanup(path.write_text, before)

    def test_as_it_is(self):
        status, text = self.build("braze_doors")
        self.assertEqual(status, 0, text)

    def test_forbidden_include(self):
        self.changed("src/base/hash.h", "#pragma once", '#pragma once\n#include "symbolic/expr.h"')
        status, text = self.build("braze_base")
        self.assertNotEqual(status, 0, text)
        self.assertIn("src/base/hash.h", text)
        self.assertIn("base does not see symbolic", text)

    def test_private_name_of_pytorch(self):
        self.changed("src/base/hash.h", "#pragma once", '#pragma once\nconstexpr const char* kName = "_parameters";')
        self.changed("python/braze/_fx.py", "import torch\n", "import torch\n\ntorch._C._no_such\n")
        status, text = self.build("braze_doors")
        self.assertNotEqual(status, 0, text)
        self.assertRegex(
            text, r"src/base/hash.h:\d+: _parameters is PyTorch's own: write it in src/trace/pytorch/names.def"
        )
        self.assertRegex(text, r"python/braze/_fx.py:\d+: torch._C._no_such is PyTorch's own")

    def test_row_that_names_too_much(self):
        self.changed("CMakeLists.txt", "braze_folder(graph USES symbolic)", "braze_folder(graph USES symbolic passes)")
        status, text = self.build("braze_doors")
        self.assertNotEqual(status, 0, text)
        self.assertIn("graph names passes, of which it includes nothing", text)

    def test_table_that_says_otherwise(self):
        self.changed(
            "ARCHITECTURE.md",
            "| graph to graph: decompose, fold, merge, views | graph |",
            "| graph to graph: decompose, fold, merge, views | loop |",
        )
        status, text = self.build("braze_doors")
        self.assertNotEqual(status, 0, text)
        self.assertIn("passes sees graph; the table says loop", text)


if __name__ == "__main__":
    sys.exit(unittest.main())
