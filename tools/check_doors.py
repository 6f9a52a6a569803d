"""Checks that each folder of src/ includes exactly the folders that its row in CMakeLists.txt names (base is everybody's), and that
ARCHITECTURE.md says the same.

Headers bring others along, so a compiler cannot tell what a file names from what it merely gets; hence this look at the #include lines.
Run by the build before anything is compiled: `cmake` writes the rows to doors.txt, one `folder[ neighbours of its target]: what it sees`
a line.
"""

import argparse
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path, help="doors.txt of the build folder")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    parser.add_argument("--stamp", type=pathlib.Path, help="written when all is well")
    args = parser.parse_args()
    rows = read_rows(args.rows.read_text())
    faults = [*check_includes(rows, args.root / "src"), *check_table(rows, (args.root / "ARCHITECTURE.md").read_text())]
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    if not faults and args.stamp:
        args.stamp.write_text("")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
