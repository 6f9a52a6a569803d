# Golden tests of the stages: run with `lit tests/filetests` (lit from PyPI, FileCheck of LLVM 19).
# BRAZE_BUILD names the build directory (default: build beside src/); braze-opt is taken from its tools/.
import os
import shutil

import lit.formats

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
build = os.path.abspath(os.environ.get("BRAZE_BUILD", os.path.join(root, "build")))
filecheck = shutil.which("FileCheck-19") or shutil.which("FileCheck") or "/usr/lib/llvm-19/bin/FileCheck"

config.name = "braze"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".graph", ".loop", ".test"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = os.path.join(build, "filetests")
config.environment["BRAZE_VERIFY"] = "1"
config.substitutions.append(("%braze-opt", os.path.join(build, "tools", "braze-opt")))
config.substitutions.append(("%FileCheck", filecheck))
