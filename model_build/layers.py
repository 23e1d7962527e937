"""Names the parts of an exported graph after its modules, so that a user can list them in workload.toml.

In: a graph of torch's exporter, which notes for every node the modules it comes from. Out: a name for every node, and
the list of names. A product is named after its weight (`layers.3.feed_forward.out`), any other node after the module it
is in, with `.own` where that module also holds others (`layers.3.own` is its attention). Nodes of the outermost module
are `own`. No two names overlap, so that they can be bisected.

A user may write less: `layers.3` covers every name that begins with it and a dot.
"""

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx

from workloads import UsageError

SCOPES = "pkg.torch.onnx.name_scopes"
PRODUCTS = ("MatMul", "Gemm")
OWN = "own"


def by_node(model: onnx.ModelProto) -> list[str]:
    """Returns the layer of every node, in the graph's order."""
    modules = _modules(model)
    weights = {tensor.name for tensor in model.graph.initializer}
    parts = {tuple(module.split(".")) for module in modules if module}
    holders = {".".join(each[:depth]) for each in parts for depth in range(len(each))}
    return [_name(node, module, weights, holders) for node, module in zip(model.graph.node, modules, strict=True)]


def products(file: Path) -> dict[str, str]:
    """Returns the layer of every MatMul with weights, by node name: int8 quantises these."""
    model = onnx.load(file, load_external_data=False)
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        node.name: layer
        for node, layer in zip(model.graph.node, by_node(model), strict=True)
        if node.op_type == "MatMul" and weights.intersection(node.input)
    }


def names(model: onnx.ModelProto) -> tuple[str, ...]:
    """Returns every layer once, in the order in which the graph comes to it."""
    return tuple(dict.fromkeys(by_node(model)))


def chosen(layers: Sequence[str], wanted: Iterable[str]) -> frozenset[str]:
    """Returns the layers that `wanted` covers. Raises `UsageError` for a name that covers none."""
    covers = {name: {layer for layer in layers if layer == name or layer.startswith(f"{name}.")} for name in wanted}
    if unknown := [name for name, covered in covers.items() if not covered]:
        raise unknown_layer(unknown, layers)
    return frozenset().union(*covers.values())


def unknown_layer(names: Sequence[str], known: Sequence[str]) -> UsageError:
    return UsageError(
        f"fp32_layers: the graph has no {', '.join(names)}. A name covers all layers that begin with it and a dot. "
        f"Layers: {', '.join(known)}."
    )


def of_graph(wanted: Iterable[str], graph: str) -> tuple[str, ...]:
    """Returns the names that begin with the graph's, as in `encoder.layers.3`, without that beginning."""
    return tuple(name.removeprefix(f"{graph}.") for name in wanted if name.startswith(f"{graph}."))


def _modules(model: onnx.ModelProto) -> list[str]:
    """Returns the innermost module of every node; where the exporter notes none (several outputs), its input's."""
    of_value: dict[str, str] = {}
    modules = []
    for node in model.graph.node:
        module = _scope(node)
        if module is None:
            module = next((of_value[value] for value in node.input if value in of_value), "")
        of_value |= dict.fromkeys(node.output, module)
        modules.append(module)
    return modules


def _scope(node: onnx.NodeProto) -> str | None:
    """Returns None when the exporter noted nothing. Its scopes go inwards and end with the node's own name."""
    noted = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), None)
    if noted is None:
        return None
    modules: list[str] = ast.literal_eval(noted)[:-1]
    return modules[-1] if modules and not modules[-1].startswith("_") else ""


def _name(node: onnx.NodeProto, module: str, weights: set[str], holders: set[str]) -> str:
    inside = f"{module}." if module else ""
    if node.op_type in PRODUCTS:
        # The module's own weight, not one that the exporter merged from another or made up (val_7).
        own = (each for each in node.input if each in weights and each.startswith(inside))
        if (weight := next((each for each in own if inside or not each.startswith("val_")), None)) is not None:
            return str(weight).removesuffix(".weight")
    return f"{inside}{OWN}" if module in holders or not module else module
