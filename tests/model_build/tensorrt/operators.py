"""Checks whether TensorRT's ONNX parser takes a graph, by the operator list that its project publishes.

In: a graph. Out: a sentence for every node it would not take. The list is `operators.toml`, with its source. An
operator's types are those of its data: of the first input and of all that must have the same type; of the output where
an operator makes values out of a shape or of another type.

It does not know restrictions that only words describe (the table repeats them), nor a graph inside a node, nor whether
a plugin would help. The list is that of one release; what TensorRT 11 adds to it is not in it.
"""

from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

import onnx
from onnx import TensorProto, defs

from model_build.tensorrt.precision import element_types
from workloads.document import Document

TABLE = Path(__file__).with_name("operators.toml")
TypeName = Literal["FP32", "FP16", "BF16", "INT8", "UINT8", "INT32", "INT64", "BOOL"]
TYPE_NAMES = {"FLOAT": "FP32", "FLOAT16": "FP16", "BFLOAT16": "BF16"}
"""The list's names, where they are not ONNX's."""


class Operator(Document):
    types: tuple[TypeName, ...]
    constant: tuple[int, ...] = ()
    restriction: str = ""


class Source(Document):
    project: str
    file: str
    version: str
    read: date
    min_opset: int
    max_opset: int


class Operators(Document):
    source: Source
    operators: dict[str, Operator]


@cache
def table() -> Operators:
    return Operators.from_toml(TABLE)


def unsupported(model: onnx.ModelProto) -> list[str]:
    """Returns one sentence per problem, in the graph's order; none means that the parser is said to take it."""
    source = table().source
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if not source.min_opset <= opset <= source.max_opset:
        return [f"The graph is of opset {opset}; {source.version} takes {source.min_opset} to {source.max_opset}."]
    types, constants = element_types(model), _constants(model)
    return [
        f"{node.op_type} {node.name or node.output[0]}: {problem}."
        for node in model.graph.node
        for problem in _problems(node, opset, types, constants)
    ]


def _problems(node: onnx.NodeProto, opset: int, types: dict[str, int], constants: set[str]) -> Iterator[str]:
    listed = table()
    if node.domain not in ("", "ai.onnx"):
        yield f"is of {node.domain}, not one of ONNX's own operators"
        return
    operator = listed.operators.get(node.op_type)
    if operator is None:
        yield f"is not in {TABLE.name}; look it up in {listed.source.project}'s {listed.source.file} and add it"
        return
    if not operator.types:
        yield f"is not supported by {listed.source.version}"
        return
    for value in _data(node, opset):
        name = TensorProto.DataType.Name(types.get(value, TensorProto.UNDEFINED))
        name = TYPE_NAMES.get(name, name)
        if name not in operator.types:
            yield f"{value} is {name}; {listed.source.version} takes {', '.join(operator.types)}"
    for position in operator.constant:
        if position < len(node.input) and node.input[position] and node.input[position] not in constants:
            yield f"{node.input[position]} must be a constant"


def _data(node: onnx.NodeProto, opset: int) -> list[str]:
    """Returns the values that the list's types are about."""
    schema = defs.get_schema(node.op_type, opset)
    if node.op_type == "Cast":
        return [*node.input, *node.output]
    sides = [(node.input, schema.inputs), (node.output, schema.outputs)]
    named = [
        (value, formals[min(i, len(formals) - 1)].type_str)
        for values, formals in sides
        for i, value in enumerate(values)
        if value
    ]
    return [value for value, variable in named if variable == "T"] or list(node.output)


def _constants(model: onnx.ModelProto) -> set[str]:
    made = {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    return made | {tensor.name for tensor in model.graph.initializer}
