"""Checks requests against the signature of the model that answers them.

A .jsonl file has one request per line; any other file is one body. A request is KServe v2 JSON (an object with
`inputs`), or a row: an object of texts, each for the input that is its name in capitals, [1, 1] BYTES, as
inference_recommender sends it. Binary KServe bodies are not read. A model whose config.pbtxt leaves its inputs to the
backend is not compared; the size is.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from model_build.lint.finding import Finding, FindingPlace, finding
from model_build.lint.hosting import default_model
from model_build.lint.layout import PackedRepository
from model_build.lint.model_config import enum_name, required_inputs
from workloads import UsageError

MAX_BODY_BYTES = 6_291_456


def check_requests(repository: PackedRepository) -> Iterator[Finding]:
    """Yields one finding for each kind of problem in a file, at its first line. Raises `UsageError`."""
    default = default_model(repository)
    model = repository.models[default] if default else None
    if model is None or not model.has_file or not model.readable:
        return
    for file in repository.context.payloads or ():
        lines_of: dict[Finding, list[int | None]] = {}
        for line, body in _bodies(file):
            for problem in check_body(body, model.name, model.config):
                lines_of.setdefault(problem, []).append(line)
        for problem, lines in lines_of.items():
            others = f" {len(lines)} lines have this problem." if len(lines) > 1 else ""
            yield replace(problem, what=problem.what + others, file=file.name, line=lines[0])


def check_body(body: bytes, model: str, config: Any) -> list[Finding]:
    """Returns the problems for which the endpoint would answer with an error. Pure."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        return [_problem("payload-unreadable", problem=f"is not JSON ({error})")]
    if isinstance(request, dict) and "inputs" not in request and all(isinstance(v, str) for v in request.values()):
        row = {field.upper(): text for field, text in request.items()}
        tensors = [{"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [row[name]]} for name in row]
        request = {"inputs": tensors}
        body = json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass")
    too_large = len(body) > MAX_BODY_BYTES
    problems = [_problem("payload-too-large", size=len(body), limit=MAX_BODY_BYTES)] if too_large else []
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not all(isinstance(tensor, dict) for tensor in inputs):
        return [*problems, _problem("payload-unreadable", problem="has no list `inputs` of objects")]
    return [*problems, *(_inputs(inputs, model, config) if config.input else ())]


def _problem(rule: str, **values: object) -> Finding:
    return finding(rule, FindingPlace(""), **values)


def _bodies(file: Path) -> Iterator[tuple[int | None, bytes]]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file}: cannot be read: {error.strerror or error}. Allowed: a .jsonl file with one request per line, or "
            "a file that is one request body in KServe v2 JSON."
        ) from error
    if file.suffix != ".jsonl":
        yield None, data
        return
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            yield number, line


def _inputs(inputs: list[dict[str, Any]], model: str, config: Any) -> list[Finding]:
    signature = {tensor.name: tensor for tensor in config.input}
    sent = [str(tensor.get("name")) for tensor in inputs]
    names, maximum = ", ".join(signature), config.max_batch_size
    problems = [
        _problem("payload-input/unknown", name=name, model=model, names=names) for name in sent if name not in signature
    ]
    for name, tensor in signature.items():
        if name in required_inputs(config) and name not in sent:
            values = {"name": name, "model": model, "type": _datatype(tensor), "dims": list(tensor.dims)}
            problems.append(_problem("payload-input/missing", **values))
    for name, tensor in zip(sent, inputs, strict=True):
        if name in signature:
            problems += _tensor(tensor, signature[name], maximum)
    return problems


def _tensor(tensor: Mapping[str, Any], expected: Any, max_batch_size: int) -> Iterator[Finding]:
    """Yields the first problem of an input: its type, its shape or its batch."""
    name, got, needed, shape = expected.name, tensor.get("datatype"), _datatype(expected), tensor.get("shape")
    dims = (-1, *expected.dims) if max_batch_size > 0 else tuple(expected.dims)
    if got != needed:
        yield _problem("payload-type", name=name, got=got, type=needed)
    elif not isinstance(shape, list) or len(shape) != len(dims) or not all(map(_fits, shape, dims)):
        batch = ", the batch first" if max_batch_size > 0 else ""
        yield _problem("payload-shape", name=name, shape=shape, dims=list(dims), batch=batch)
    elif max_batch_size > 0 and not 1 <= shape[0] <= max_batch_size:
        yield _problem("payload-batch", name=name, size=shape[0], maximum=max_batch_size)


def _fits(size: object, dim: int) -> bool:
    return type(size) is int and size >= 0 and dim in (-1, size)


def _datatype(tensor: Any) -> str:
    """Returns KServe's name of a type: BYTES for TYPE_STRING, else what follows TYPE_."""
    name = enum_name(tensor, "data_type")
    return "BYTES" if name == "TYPE_STRING" else name.removeprefix("TYPE_")
