"""The rows of src/graph/ops.def: each names a real PyTorch operator, and pointwise rows say what eager accepts and returns."""

import pathlib
import re

import pytest
import torch

TABLE = pathlib.Path(__file__).parents[2] / "src" / "graph" / "ops.def"
COLUMNS = ("name", "aten", "cls", "result", "accepts", "cost", "raises", "traits")
ROW = re.compile(
    r'^BRAZE_OP\((\w+), "((?:aten|braze)::[\w.]+)", (\w+), ([\w(), .]+?), (\w+), (\w+), (\w+), ([\w| ]+)\)$'
)


def rows():
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("BRAZE_OP")]
    parsed = [ROW.match(line) for line in lines]
    assert all(parsed), [line for line, m in zip(lines, parsed) if not m]
    named = [dict(zip(COLUMNS, m.groups())) for m in parsed]
    return [row for row in named if not row["aten"].startswith("braze::")]  # Braze's own


def schemas():
    return {s.name + ("." + s.overload_name if s.overload_name else ""): s for s in torch._C._jit_get_all_schemas()}


def test_names_are_schemas():
    known = schemas()
    assert [row["aten"] for row in rows() if row["aten"] not in known] == []


def test_names_are_unique():
    table = rows()
    assert len({row["name"] for row in table}) == len(table)
    assert len({row["aten"] for row in table}) == len(table)


def test_enum_names_follow_the_aten_names():
    for row in rows():
        plain = row["aten"].removeprefix("aten::")
        if plain.startswith("__"):
            plain = "op_" + plain.split(".")[0].strip("_") + "_" + plain.split(".")[1]
        assert row["name"] == plain.replace(".", "_")


def test_multi_output_trait():
    known = schemas()
    for row in rows():
        returns = known[row["aten"]].returns
        many = len(returns) > 1 or "List[Tensor]" in str(returns[0].type if returns else "")
        assert ("kMultiOutput" in row["traits"]) == many, row


DTYPES = (torch.bool, torch.int64, torch.float32)
ACCEPTED = {
    "AnyDType": DTYPES,
    "NoBool": DTYPES[1:],
    "NoBoolOperand": DTYPES[1:],
    "Floats": DTYPES[2:],
    "Integers": DTYPES[1:2],
    "IntegersOrBool": DTYPES[:2],
}
# Eager takes more: a power that is True; bools and numbers give integers; limits that depend on the sign; a gradient is a float
# where it is ours.
NARROWER = {
    "pow_Tensor_Scalar": {torch.bool},
    "square": {torch.bool},
    "hardtanh": {torch.int64},
    "relu6": {torch.int64},
    "native_dropout_backward": {torch.bool, torch.int64},
}


def call(row, dtype):
    """The dtype of eager's result for operands of that dtype; None where it raises."""
    name, _, overload = row["aten"].removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, name), overload or "default")
    one = {torch.bool: True, torch.int64: 1, torch.float32: 1.0}[dtype]
    plain = {"int": 0, "float": 1.0, "bool": False, "str": "none"}
    args, kwargs = [], {"rounding_mode": "floor", "decimals": 0}
    for i, a in enumerate(op._schema.arguments):
        if a.kwarg_only:
            break
        kind = str(a.type)
        if kind in ("Tensor", "Optional[Tensor]"):
            condition = a.name == "mask" or (name == "where" and i == 0)
            shape = () if row["name"] == "masked_fill_Tensor" and i == 2 else (3,)
            args.append(torch.ones(shape, dtype=torch.bool if condition else dtype))
        elif kind in ("number", "Optional[number]"):
            args.append(one)
        else:
            args.append(plain[kind] if a.default_value is None and not kind.startswith("Optional") else a.default_value)
    named = {a.name for a in op._schema.arguments if a.kwarg_only}
    try:
        result = op(*args, **{k: v for k, v in kwargs.items() if k in named})
    except RuntimeError:  # NotImplementedError, too
        return None
    return (result[0] if isinstance(result, tuple) else result).dtype


@pytest.mark.parametrize("row", [r for r in rows() if r["cls"] == "Pointwise"], ids=lambda r: r["name"])
def test_pointwise_rows_say_what_eager_accepts_and_returns(row):
    rule = row["result"].split("(")[0]
    for dtype in DTYPES:
        made, accepted = call(row, dtype), dtype in ACCEPTED[row["accepts"]]
        assert made is not None or not accepted, f"eager refuses {dtype}"
        if dtype in NARROWER.get(row["name"], ()):
            continue
        assert accepted == (made is not None), f"eager computes {dtype}"
        by_rule = {"promote": dtype, "first": dtype, "boolean": torch.bool, "floating": torch.float32}.get(rule)
        assert not accepted or by_rule in (None, made), f"eager makes {made} of {dtype}"
