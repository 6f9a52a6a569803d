#!/usr/bin/env python3
"""Writes docs/operators.md: what becomes of each operator, read from the table and the rules. `--check`: fails if it is not current."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROW = re.compile(r'^BRAZE_OP\((\w+), "aten::([\w.]+)", (\w+), ', re.M)
HEAD = """# What becomes of each operator

Made by `tools/operators.py` from `src/graph/ops.def` and the rules; `tests/python/operators_doc_test.py` checks that it is current.

- *kernel*: loops that fuse with their neighbours; the file holds the rule. Complex dtypes, and integer dtypes that eager refuses, stay
  extern calls, so that results and exceptions are eager's.
- *decomposed*: written as other operators before lowering. A form for which the rule is not exact stays an extern call.
- *view*: index arithmetic, or a window on the operand's memory.
- *extern*: a call of PyTorch's own kernel, in order with the rest of the plan. Operators that are not listed are extern, too.

Operators without a row that are decomposed by their names stand with the others; those over lists of tensors (`_foreach_*`) once for
all overloads. Random numbers are kernels where Philox draws them, calls with `options={"rng": "eager"}`.

Floats of a byte (`float8_e4m3fn`, `float8_e5m2`, their `fnuz` kinds, `float8_e8m0fnu`) are read and rounded in kernels, computed in float32:
casts, copies, views, `where`, `cat`, `stack`, indexing, `==` and `!=` fuse with their neighbours, with the results of eager's casts bit by bit
(in versions of PyTorch whose casts to `float8_e4m3fn` saturate, and in those whose casts give NaN); other operators on them stay
calls, which compute or raise as eager does. `torch._scaled_mm` and the operators on packed weights (`_weight_int8pack_mm`,
`_weight_int4pack_mm`, ...) are calls. Weights that plain code unpacks and scales (int8, float8, two or eight groups of four bits to a
byte or word) are multiplied where they are read: products of up to eight rows on a GPU, of one row on a CPU.

Convolutions of `float32` images on a CPU are kernels where they are of each channel by itself, or have windows of one element and
take no more than 12 million multiplications: sums of which several points share what they read. Bias and what follows are
computed in them, the zeros around an image are written where it is made. On a GPU those of each channel by itself are, of images
whose channels are next to each other.

Sums, means, norms and softmax of `bfloat16` and `float16` are added up in float32, and so is what is added to elements
of a tensor on a CPU (`scatter_add`, `index_add`, `scatter_reduce` with "sum"); a GPU's additions to memory round each, as eager's do there.

An operator breaks the graph only when its result depends on data in a way that a plan cannot hold: a Python number read from a tensor
(`item`; not with `fullgraph=True`), tensors that are not strided, and operators for which
PyTorch has no Meta kernel.

"""


def text(path):
    return (ROOT / path).read_text()


def cases(path, after=None, before=None):
    """The operators of the case labels in a file, or in the part of it between two texts."""
    source = text(path)
    if after:
        source = source[source.index(after) :]
    if before:
        source = source[: source.index(before)]
    return set(re.findall(r"case Op::(\w+)", source))


def rules():
    """name -> (what, file)"""
    found = {}
    for path in sorted((ROOT / "src/passes").glob("decompose_*.cpp")):
        file = str(path.relative_to(ROOT))
        if "DecomposeRule " not in path.read_text():
            continue
        for op in cases(file, after="DecomposeRule "):
            found[op] = ("decomposed", file)
    for file in ("src/lower/pointwise.cpp", "src/lower/activation.cpp", "src/lower/special.cpp"):
        source = text(file)
        refused = set(re.findall(r"^NO_RULE\((\w+)\)", source, re.M))
        for op in re.findall(r"^(?:RULE|RULES_EQUAL|FLOAT_FUNCTION|ROUNDING)\((\w+)", source, re.M):
            if op not in refused:
                found.setdefault(op, ("kernel", file))
    parts = [
        ("src/lower/reduce.cpp", "Rule rule_of(Op op)", "}  // namespace"),
        ("src/lower/scan.cpp", "bool takes_scan", "bool lower_scan"),
        ("src/lower/index.cpp", "ElementRule index_rule", "bool takes_index"),
        ("src/lower/window.cpp", "ElementRule window_rule", "bool takes_window"),
        ("src/lower/sample.cpp", "ElementRule sample_rule", "bool takes_sample"),
        ("src/lower/scatter.cpp", "bool lower_scatter", None),
        ("src/lower/window_backward.cpp", "BackwardRule backward_rule", None),
        ("src/lower/write.cpp", "bool lower_writes", None),
        ("src/lower/factory.cpp", "ElementRule factory_rule", None),
        ("src/lower/random.cpp", "ElementRule random_rule", None),
    ]
    for file, after, before in parts:
        for op in cases(file, after, before):
            what, where = found.get(op, ("", ""))
            # A rule of each kind: decomposed where that is exact, else a kernel.
            found[op] = ("decomposed, else kernel", f"{where}, {file}") if what == "decomposed" else ("kernel", file)
    return found


def named():
    """ATen name -> file, of the operators that decompose by name."""
    found = {}
    for path in sorted((ROOT / "src/passes").glob("decompose_*.cpp")):
        source = path.read_text()
        pairs = re.findall(r'\{"(?:aten::)?([\w.:]+)", \w+(?:<[\w:]+>)?\}', source)
        for name in pairs + re.findall(r'extern_name == "aten::([\w.]+)"\) return', source):
            found[name] = str(path.relative_to(ROOT))
    file = "src/passes/decompose_foreach.cpp"
    for name in re.findall(r'^    \{"(\w+)", Op::|name == "(\w+)"|\{"(addc\w+)", Op::', text(file), re.M):
        found["_foreach_" + "".join(name)] = file
    return found


def page():
    found, groups = rules(), {}
    for name, where in named().items():
        groups.setdefault(("decomposed", where), []).append(f"`{name}`")
    for name, aten, cls in ROW.findall(text("src/graph/ops.def")):
        what, where = found.get(name, ("view", "src/lower/view.cpp") if cls == "View" else ("extern", ""))
        groups.setdefault((what, where), []).append(f"`{aten}`")
    order = {"kernel": 0, "decomposed": 1, "decomposed, else kernel": 2, "view": 3, "extern": 4}
    lines = [HEAD + "| | where | operators |", "| --- | --- | --- |"]
    for (what, where), ops in sorted(groups.items(), key=lambda g: (order[g[0][0]], g[0][1])):
        lines.append(f"| {what} | {where} | {' '.join(ops)} |")
    count, plain = {}, {}
    for (what, _), ops in groups.items():
        kind = what.split(",")[0]
        count[kind] = count.get(kind, 0) + len(ops)
        plain.setdefault(kind, set()).update(op.strip("`").split(".")[0] for op in ops)
    counted = ", ".join(f"{count[kind]} {kind}" for kind in ("kernel", "decomposed", "view", "extern"))
    native = sum(count[kind] for kind in ("kernel", "decomposed", "view"))
    lines += [
        "",
        f"In all: {counted}; {native} are compiled. Without overloads: {len(plain['decomposed'])} decomposed.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    target = ROOT / "docs" / "operators.md"
    if "--check" in sys.argv:
        sys.exit(target.read_text() != page())
    target.write_text(page())
