"""A golden text that was changed is brought back to what braze-opt prints by one command (tools/update_golden.py)."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("BRAZE_BUILD", ROOT / "build"))


class Golden(unittest.TestCase):
    def updated(self, name, *changes):
        """(what it prints, the text before, the text after) of a copy of a test in which lines were changed."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / pathlib.Path(name).name
            shutil.copy(ROOT / "tests/filetests" / name, file)
            before = file.read_text()
            for old, new in changes:
                self.assertIn(old, file.read_text())
                file.write_text(file.read_text().replace(old, new, 1))
            command = [sys.executable, ROOT / "tools/update_golden.py", "--build", BUILD, file]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout, before, file.read_text()

    def test_what_passes_stays(self):
        for file in sorted((ROOT / "tests/filetests/passes").glob("*.graph"))[:6]:
            printed, before, after = self.updated(f"passes/{file.name}")
            self.assertEqual((printed, after), ("", before))

    def test_lines_that_no_longer_match(self):
        printed, before, after = self.updated(
            "passes/accumulate_scatter.graph",
            (
                "CHECK: [[M:%[0-9]+]]: bool[2,3] = aten::eq.Scalar(%1, 3)",
                "CHECK: [[M:%[0-9]+]]: bool[2,3] = aten::eq.Scalar(%1, 4)",
            ),
            ("return [[A]], [[B]], [[C]]", "return [[A]], [[B]], [[A]], [[C]]"),
        )
        self.assertIn("2 lines rewritten", printed)
        self.assertNotIn("fails", printed)
        self.assertIn("// CHECK: [[M:%[0-9]+]]: bool[2,3] = aten::eq.Scalar(%1, 3)\n", after)
        self.assertRegex(after, r"// CHECK: return \[\[A\]\], \[\[B\]\], \[\[C\]\], ")
        self.assertEqual(re.sub("// CHECK: return.*", "", after), re.sub("// CHECK: return.*", "", before))


if __name__ == "__main__":
    unittest.main()
