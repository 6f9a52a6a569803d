"""Every row of src/graph/ops.def names a real PyTorch operator, once, with the right number of results."""

import pathlib
import re

import torch

TABLE = pathlib.Path(__file__).parents[2] / "src" / "graph" / "ops.def"
ROW = re.compile(r'^BRAZE_OP\((\w+), "(aten::[\w.]+)", (\w+), ([\w| ]+)\)$')


def rows():
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("BRAZE_OP")]
    parsed = [ROW.match(line) for line in lines]
    assert all(parsed), [line for line, m in zip(lines, parsed) if not m]
    return [m.groups() for m in parsed]


def schemas():
    return {s.name + ("." + s.overload_name if s.overload_name else ""): s for s in torch._C._jit_get_all_schemas()}


def test_names_are_schemas():
    known = schemas()
    assert [aten for _, aten, _, _ in rows() if aten not in known] == []


def test_names_are_unique():
    table = rows()
    assert len({name for name, *_ in table}) == len(table)
    assert len({aten for _, aten, *_ in table}) == len(table)


def test_enum_names_follow_the_aten_names():
    for name, aten, _, _ in rows():
        plain = aten.removeprefix("aten::")
        if plain.startswith("__"):
            plain = "op_" + plain.split(".")[0].strip("_") + "_" + plain.split(".")[1]
        assert name == plain.replace(".", "_")


def test_multi_output_trait():
    known = schemas()
    for _, aten, _, traits in rows():
        returns = known[aten].returns
        many = len(returns) > 1 or "List[Tensor]" in str(returns[0].type if returns else "")
        assert ("kMultiOutput" in traits) == many, aten
