"""Checks that each folder of src/ includes exactly the folders that its row in CMakeLists.txt names (base is everybody's), that
ARCHITECTURE.md says the same, and that names which PyTorch keeps for itself are written in the tables of src/trace/pytorch/ alone.

Headers bring others along, so a compiler cannot tell what a file names from what it merely gets; hence this look at the #include lines.
Run by the build before anything is compiled: `cmake` writes the rows to doors.txt, one `folder[ neighbours of its target]: what it sees`
a line.
"""

import argparse
import ast
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.M)
SOURCES = {".h", ".cpp", ".c", ".def", ".cu"}


def read_rows(text):
    """{folder: (folders of the target, what it sees)}"""
    rows = {}
    for line in filter(None, text.splitlines()):
        names, _, sees = line.partition(":")
        names = names.split()
        rows[names[0]] = names, set(sees.split()) - {"base"}
    return rows


def owner(rows, path):
    """The row that a file or header below src/ belongs to; None: of no row."""
    found = [(name, row) for row, (names, _) in rows.items() for name in names if path.startswith(name + "/")]
    return max(found, key=lambda f: len(f[0]))[1] if found else None


def check_includes(rows, src):
    used = {row: set() for row in rows}
    for file in sorted(src.rglob("*")):
        row = owner(rows, file.relative_to(src).as_posix()) if file.suffix in SOURCES else None
        if row is None:
            continue
        text = file.read_text()
        for m in INCLUDE.finditer(text):
            target = owner(rows, m[1])
            if target is None or target in (row, "base"):
                continue
            used[row].add(target)
            if target not in rows[row][1]:
                line = text.count("\n", 0, m.start()) + 1
                yield f"src/{file.relative_to(src)}:{line}: includes {m[1]}, but {row} does not see {target} (its row in CMakeLists.txt)"
    for row, (_, sees) in rows.items():
        for unused in sorted(sees - used[row]):
            yield f"CMakeLists.txt: {row} names {unused}, of which it includes nothing"


def check_table(rows, text):
    told = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) == 3 and (name := re.match(r"`([\w/]+)/`", cells[0])):
            told[name[1]] = set(re.findall(r"[\w/]+", re.sub(r"\(.*?\)", "", cells[2]))) - {"base", "nothing"}
    for row, (_, sees) in rows.items():
        if row not in told:
            yield f"ARCHITECTURE.md: no row for {row}"
        elif told[row] != sees:
            yield f"ARCHITECTURE.md: {row} sees {', '.join(sorted(sees)) or 'nothing'}; the table says {', '.join(sorted(told[row])) or 'nothing'}"


def read_private_names(src):
    """Dotted names of names.def; texts that no other file may hold: their paths, and attributes."""
    door = src / "trace/pytorch"
    rows = re.findall(r'^BRAZE_PYTORCH_NAME\(\w+, "([\w.]+)", "([\w.]*)"', (door / "names.def").read_text(), re.M)
    attributes = re.findall(r'^BRAZE_PYTORCH_ATTRIBUTE\(\w+, "(\w+)"', (door / "attributes.def").read_text(), re.M)
    dotted = {f"{module}.{path}" if path else module for module, path in rows}
    return dotted, {path for _, path in rows if path.startswith("_")} | set(attributes)


def is_private(dotted):
    return dotted.startswith("torch.") and any(re.match(r"_[a-zA-Z]", part) for part in dotted.split("."))


def dotted_names(tree):
    """(line, name) of what a module of Python reaches through `torch` or imports from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            parts, at = [], node
            while isinstance(at, ast.Attribute):
                parts.append(at.attr)
                at = at.value
            if isinstance(at, ast.Name) and at.id == "torch":
                yield node.lineno, ".".join(["torch", *reversed(parts)])


def check_private_names(root):
    dotted, texts = read_private_names(root / "src")
    told = "write it in src/trace/pytorch/names.def or attributes.def"
    for file in sorted((root / "src").rglob("*")):
        if file.suffix not in SOURCES or file.is_relative_to(root / "src/trace/pytorch"):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for literal in re.findall(r'"((?:torch\.[\w.]+)|_\w+)"', line.split("//")[0]):
                if is_private(literal) or literal in texts:
                    yield f"{file.relative_to(root)}:{number}: {literal} is PyTorch's own: {told}"
    for file in sorted((root / "python/braze").rglob("*.py")):
        seen = set()
        for line, name in dotted_names(ast.parse(file.read_text())):
            known = any(name == row or name.startswith(row + ".") or row.startswith(name + ".") for row in dotted)
            if is_private(name) and not known and line not in seen:
                seen.add(line)
                yield f"{file.relative_to(root)}:{line}: {name} is PyTorch's own: {told}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path, help="doors.txt of the build folder")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    parser.add_argument("--stamp", type=pathlib.Path, help="written when all is well")
    args = parser.parse_args()
    rows = read_rows(args.rows.read_text())
    faults = [
        *check_includes(rows, args.root / "src"),
        *check_table(rows, (args.root / "ARCHITECTURE.md").read_text()),
        *check_private_names(args.root),
    ]
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    if not faults and args.stamp:
        args.stamp.write_text("")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
