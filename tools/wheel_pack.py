"""Makes a wheel of the Python package, the shared core and extensions beside it, each in a build folder of tools/wheel.sh."""

import argparse
import base64
import hashlib
import re
import subprocess
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Libraries that come with PyTorch and are loaded before ours.
PYTORCH = ["libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libgomp.so.1"]


def symbols(library, *options):
    """(type, name) of each symbol that has one."""
    lines = subprocess.run(["nm", "-P", *options, library], capture_output=True, text=True, check=True).stdout
    return [(line.split()[1], line.split()[0]) for line in lines.splitlines()]


def of_braze(name):
    """Whether a mangled name is of namespace braze, and not of an unnamed namespace in it or of a class's tables."""
    return re.match(r"_Z(GV|TH|TW)?Z?N?K?5braze", name) and "_GLOBAL__N_" not in name


def check(core, extension):
    """What links but does not work: a function that the core lacks, a variable that each of the two has for itself."""
    exported = {name for _, name in symbols(core, "-D", "--defined-only")}
    strange = [name for name in exported if "5braze" not in name]
    missing = [
        name for _, name in symbols(extension, "-D", "--undefined-only") if of_braze(name) and name not in exported
    ]
    written = [
        {n for t, n in symbols(library, "--defined-only") if t in "bBdDuV" and of_braze(n)}
        for library in (core, extension)
    ]
    twice = written[0] & written[1]
    for names, what in (
        (strange, "exported by the core"),
        (missing, "not in the core"),
        (twice, "in the core and in the extension"),
    ):
        if names:
            raise SystemExit(f"{extension}: {what}: {', '.join(sorted(names)[:5])} ({len(names)} in all)")


def stripped(library, folder):
    to = folder / library.name
    subprocess.run(["strip", "-o", to, library], check=True)
    return to.read_bytes()


def built(extension):
    """What _built.py of a build folder says, as a dictionary."""
    values = {}
    exec((extension / "_built.py").read_text(), values)
    return values


def contents(core, extensions, folder):
    package = ROOT / "python"
    files = {
        str(path.relative_to(package)): path.read_bytes()
        for path in sorted((package / "braze").rglob("*"))
        if path.suffix in (".py", ".pyi", ".typed")
    }
    files["braze/libbraze_core.so"] = stripped(core, folder)
    rows = sorted(
        (built(extension) | {"folder": extension} for extension in extensions),
        key=lambda row: row["VERSIONS"].index(row["PYTORCH"][0]),
    )
    for row in rows:
        library = next(row["folder"].glob("_C.*.so"))
        check(core, library)
        files[f"braze/_torch{row['PYTORCH'][0].replace('.', '_')}/{library.name}"] = stripped(library, folder)
    about = {
        "PYTORCH": tuple(row["PYTORCH"][0] for row in rows),
        "PYTHON": rows[0]["PYTHON"],
        "VERSIONS": rows[0]["VERSIONS"],
    }
    files["braze/_built.py"] = "".join(f"{name} = {value!r}\n" for name, value in about.items()).encode()
    return files


def metadata(project, tag):
    """The files of .dist-info but its list of files."""
    python = f"{tag[2]}.{tag[3:]}"
    readme = ROOT / project["readme"]
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: =={python}.*",
        "Description-Content-Type: text/markdown",
    ]
    groups = project["entry-points"].items()
    entries = "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for group, rows in groups)
    return {
        "METADATA": ("\n".join(lines) + "\n\n" + readme.read_text()).encode(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: braze\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-linux_x86_64\n".encode(),
        "entry_points.txt": entries.encode(),
        "licenses/LICENSE": (ROOT / project["license"]["file"]).read_bytes(),
    }


def write(files, to):
    digest = lambda b: "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b"=").decode()
    info = next(name.split("/")[0] for name in files if ".dist-info/" in name)
    record = "".join(f"{name},{digest(b)},{len(b)}\n" for name, b in files.items()) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, b in [*files.items(), (f"{info}/RECORD", record.encode())]:
            z.writestr(name, b)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tag", required=True, help="as cp312")
    parser.add_argument("--core", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("extensions", type=Path, nargs="+")
    args = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = f"{project['name']}-{project['version']}.dist-info"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        files = contents(args.core, args.extensions, folder)
        files |= {f"{info}/{name}": b for name, b in metadata(project, args.tag).items()}
        wheel = folder / f"{project['name']}-{project['version']}-{args.tag}-{args.tag}-linux_x86_64.whl"
        write(files, wheel)
        # The tag of the oldest systems that have every symbol asked for. It copies no library, since all others are the system's.
        args.out.mkdir(parents=True, exist_ok=True)
        for older in args.out.glob(f"*-{args.tag}-*.whl"):
            older.unlink()
        excluded = [f"--exclude={name}" for name in PYTORCH]
        done = subprocess.run(
            ["auditwheel", "repair", "-z", "9", *excluded, "-w", args.out, wheel], capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
    (wheel,) = args.out.glob(f"*-{args.tag}-*.whl")
    libraries = {name: len(b) for name, b in files.items() if name.endswith(".so")}
    for name, size in libraries.items():
        print(f"{size / 1e6:6.1f} MB  {name}")
    print(f"{wheel.stat().st_size / 1e6:6.1f} MB  {wheel}")


if __name__ == "__main__":
    main()
