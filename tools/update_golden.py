"""Brings the CHECK lines of golden texts (tests/filetests) to what braze-opt prints now: tools/update_golden.py [FILE...], all of
them without a name. A line that still matches stays as it was written, with its patterns; one that does not becomes the line that is most
like it, with the names that lines before it bound. What changed is for people to read: `git diff tests/filetests`.
"""

import argparse
import difflib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
PART = re.compile(r"\{\{(?P<pattern>.*?)\}\}|\[\[(?P<name>\w+)(?::(?P<bound>.*?))?\]\]")


class Directive:
    """A CHECK line: `// CHECK: text`, or with -NEXT, -SAME, -DAG, -NOT, -COUNT-n after its prefix."""

    def __init__(self, line, match):
        self.line, self.head, self.kind, self.text = line, match[1], match[2] or "", match[3].strip()

    def matched(self, text, bound, start=0):
        """(the names it binds, where it ends) in a line of output from `start` on, None where it does not match."""
        pattern, at, fresh = "", 0, {}
        for part in PART.finditer(self.text):
            pattern += re.escape(self.text[at : part.start()])
            at = part.end()
            if part["pattern"] is not None:
                pattern += f"(?:{part['pattern']})"
            elif part["bound"] is not None:
                fresh[part["name"]] = f"bound_{len(fresh)}"
                pattern += f"(?P<{fresh[part['name']]}>{part['bound']})"
            else:
                pattern += (
                    f"(?P={fresh[part['name']]})" if part["name"] in fresh else re.escape(bound.get(part["name"], "\0"))
                )
        pattern += re.escape(self.text[at:])
        found = re.compile(re.sub(r"(\\ |\s)+", r"\\s+", pattern)).search(text, start)
        return found and ({name: found[group] for name, group in fresh.items()}, found.end())

    def rewritten(self, text, bound):
        """As it reads for a line of output: names in place of what they stand for; those that it bound are bound again."""
        new, names = text.strip(), {}
        for part in PART.finditer(self.text):
            if part["bound"] is not None and (found := re.search(part["bound"], new)):
                names[part["name"]] = found[0]
                new = new.replace(found[0], f"[[{part['name']}:{part['bound']}]]", 1)
        for name, value in {**bound, **names}.items():
            new = re.sub(rf"(?<![\w%\[:]){re.escape(value)}(?!\w)", f"[[{name}]]", new)
        self.text = new
        return names


def update(directives, output):
    """Rewrites what does not match `output`, by turns; returns how many."""
    at, column, bound, changed = 0, 0, {}, 0  # where the last one ended
    for k, directive in enumerate(directives):
        if directive.kind in ("-NOT", "-SAME") or directive.kind.startswith("-COUNT"):
            continue
        if directive.kind == "-NEXT":
            at, column = at + 1, 0
        lines = range(at, min(at + 1, len(output)) if directive.kind == "-NEXT" else len(output))
        if not lines:
            break
        in_line = ((i, directive.matched(output[i], bound, column if i == at else 0)) for i in lines)
        found = next(((i, *m) for i, m in in_line if m), None)
        if found is None:
            # Of the lines before what the next one finds; not the one that was found before.
            later = (i for d in directives[k + 1 : k + 2] for i in lines if d.matched(output[i], bound))
            first = at if directive.kind == "-NEXT" or not column else min(at + 1, lines.stop - 1)
            near = range(first, max(next(later, lines.stop), first + 1))
            plain = PART.sub(lambda p: bound.get(p["name"] or "", ""), directive.text)
            best = max(near, key=lambda i: difflib.SequenceMatcher(None, plain, output[i].strip()).ratio())
            found = best, directive.rewritten(output[best], bound), len(output[best])
            changed += 1
        bound.update(found[1])
        if directive.kind != "-DAG":
            at, _, column = found
    return changed


def update_file(file, tools):
    """How many lines were rewritten, and whether the test passes now."""
    changed, well = 0, True
    for run in re.findall(r"RUN: (.*)", file.read_text()):
        for name, path in tools.items():
            run = run.replace(name, str(path))
        run = run.replace("%s", shlex.quote(str(file)))
        passes = lambda: not subprocess.run(["/bin/bash", "-o", "pipefail", "-c", run], capture_output=True).returncode  # noqa: B023
        if "FileCheck" not in run or passes():
            continue
        program, _, check = run.rpartition(" | ")
        output = subprocess.run(program, shell=True, capture_output=True, text=True).stdout.splitlines()
        prefix = (re.findall(r"--check-prefix=(\w+)", check) or ["CHECK"])[0]
        lines = file.read_text().splitlines(keepends=True)
        shape = re.compile(rf"(\s*//\s*{prefix})(-NEXT|-SAME|-DAG|-NOT|-COUNT-\d+)?:(.*)")
        directives = [Directive(i, m) for i, line in enumerate(lines) if (m := shape.match(line))]
        count = update(directives, output)
        for d in directives if count else []:
            lines[d.line] = f"{d.head}{d.kind}: {d.text}\n"
        if count:
            file.write_text("".join(lines))
        changed += count
        well &= passes()
    return changed, well


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument(
        "--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("BRAZE_BUILD", ROOT / "build"))
    )
    args = parser.parse_args()
    check = shutil.which("FileCheck-19") or shutil.which("FileCheck") or "/usr/lib/llvm-19/bin/FileCheck"
    tools = {"%braze-opt": args.build / "tools/braze-opt", "%FileCheck": check}
    suffixes = (".graph", ".loop", ".test")
    files = args.files or sorted(f for f in (ROOT / "tests/filetests").rglob("*") if f.suffix in suffixes)
    failed = 0
    for file in files:
        changed, well = update_file(file, tools)
        if changed or not well:
            print(f"{file}: {changed} lines rewritten" + ("" if well else "; it still fails: look at it"))
        failed += not well
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
