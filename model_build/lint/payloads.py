"""Checks requests against the signature of the model that answers them.

In: files of requests. A .jsonl has one per line, any other file is one body. A request is KServe v2 JSON (an object
with `inputs`), or a row: an object of texts, each for the input that is its name in capitals, [1, 1] BYTES, as
inference_recommender sends it. Sizes in bytes. Binary KServe bodies are not read.

A model whose config.pbtxt leaves its inputs to the backend is not compared; the size is.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from model_build.lint.finding import Finding
from model_build.lint.model_config import ModelConfig, Tensor
from workloads import UsageError

MAX_BODY_BYTES = 6_291_456
NOT_IN_JSON = ("FP16", "BF16")


@dataclass(frozen=True, slots=True)
class Problem:
    code: str
    what: str
    why: str
    fix: str


def check_payloads(files: tuple[Path, ...], model: str, config: ModelConfig) -> list[Finding]:
    """Returns one finding for each kind of problem in a file, at its first line. Raises `UsageError`."""
    findings = []
    for file in files:
        by_problem: dict[Problem, list[int | None]] = {}
        for line, body in _bodies(file):
            for problem in check_body(body, model, config):
                by_problem.setdefault(problem, []).append(line)
        findings += [_finding(file, problem, lines) for problem, lines in by_problem.items()]
    return findings


def check_body(body: bytes, model: str, config: ModelConfig) -> list[Problem]:
    """Returns the problems for which the endpoint would answer with an error. Pure."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        return [_unreadable(f"is no JSON ({error})")]
    if isinstance(request, dict) and "inputs" not in request and all(isinstance(v, str) for v in request.values()):
        request = _from_row(request)
        body = json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass")
    problems = [_too_large(len(body))] if len(body) > MAX_BODY_BYTES else []
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not all(isinstance(tensor, dict) for tensor in inputs):
        return [*problems, _unreadable("has no list `inputs` of objects")]
    return [*problems, *(_inputs(inputs, model, config) if config.inputs else [])]


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


def _from_row(row: Mapping[str, str]) -> dict[str, Any]:
    tensors = [
        {"name": field.upper(), "shape": [1, 1], "datatype": "BYTES", "data": [text]} for field, text in row.items()
    ]
    return {"inputs": tensors}


def _inputs(inputs: list[dict[str, Any]], model: str, config: ModelConfig) -> list[Problem]:
    signature = {tensor.name: tensor for tensor in config.inputs}
    sent = [str(tensor.get("name")) for tensor in inputs]
    unknown = [_unknown(name, model, signature) for name in sent if name not in signature]
    missing = [
        _input_problem(f"The request lacks the input '{name}' of '{model}'.", f"Send it: {_text(tensor)}.")
        for name, tensor in signature.items()
        if name not in sent and not tensor.optional
    ]
    problems = [
        problem
        for tensor in inputs
        if (expected := signature.get(str(tensor.get("name")))) is not None
        for problem in _tensor(tensor, expected, config.max_batch_size)
    ]
    return [*unknown, *missing, *problems] or _batches(inputs, config.max_batch_size)


def _tensor(tensor: Mapping[str, Any], expected: Tensor, max_batch_size: int) -> list[Problem]:
    name, datatype = expected.name, tensor.get("datatype")
    if datatype != _datatype(expected):
        return [
            Problem(
                "payload-type",
                f"The input '{name}' is sent as {datatype}; the model takes {_datatype(expected)}.",
                "Triton answers 400: the types must be the same.",
                f"Send {_datatype(expected)}, or change data_type in config.pbtxt.",
            )
        ]
    shape = _sizes(tensor.get("shape"))
    if shape is None:
        written = json.dumps(tensor.get("shape"))
        return [_shape_problem(f"The input '{name}' has the shape {written}.", "Send a list of sizes.")]
    if (problem := _shape(name, shape, expected, max_batch_size)) is not None:
        return [problem]
    return _data(name, tensor, shape)


def _sizes(shape: object) -> list[int] | None:
    """Returns None for what is no shape."""
    valid = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    return shape if valid and isinstance(shape, list) else None


def _shape(name: str, shape: list[int], expected: Tensor, max_batch_size: int) -> Problem | None:
    batched = max_batch_size > 0
    wanted = (-1, *expected.dims) if batched else expected.dims
    if len(shape) != len(wanted) or any(
        want not in (-1, got) for want, got in zip(wanted, shape, strict=len(shape) == len(wanted))
    ):
        return _shape_problem(
            f"The input '{name}' has the shape {shape}; the model takes {list(wanted)}"
            + (", the batch first." if batched else "."),
            "Send that shape, -1 being any size.",
        )
    if batched and not 1 <= shape[0] <= max_batch_size:
        return Problem(
            "payload-batch",
            f"The input '{name}' is a batch of {shape[0]}; max_batch_size is {max_batch_size}.",
            "Triton answers 400: the batch size must be at most max_batch_size.",
            "Send smaller batches, or raise max_batch_size.",
        )
    return None


def _data(name: str, tensor: Mapping[str, Any], shape: list[int]) -> list[Problem]:
    if "data" not in tensor:
        return [_input_problem(f"The input '{name}' has no data.", "Send `data`, a list of its elements.")]
    if tensor.get("datatype") in NOT_IN_JSON:
        return [
            Problem(
                "payload-type",
                f"The input '{name}' is {tensor['datatype']} in JSON.",
                f"Triton takes no {tensor['datatype']} as JSON, only as binary data.",
                "Send the binary form, or give the model FP32 inputs.",
            )
        ]
    count = _count(tensor["data"])
    if count == prod(shape):
        return []
    return [
        _shape_problem(
            f"The input '{name}' has {count} elements; its shape {shape} has {prod(shape)}.",
            "Send as many elements as the shape says.",
        )
    ]


def _count(data: object) -> int:
    """Counts the elements of a list of lists, however deep."""
    total, left = 0, [data]
    while left:
        item = left.pop()
        if isinstance(item, list):
            left += item
        else:
            total += 1
    return total


def _batches(inputs: list[dict[str, Any]], max_batch_size: int) -> list[Problem]:
    sizes = sorted({tensor["shape"][0] for tensor in inputs}) if max_batch_size > 0 else []
    if len(sizes) < 2:
        return []
    return [
        Problem(
            "payload-batch",
            f"The inputs have different batch sizes: {', '.join(map(str, sizes))}.",
            "Triton answers 400: all inputs of a request have one batch size.",
            "Send as many rows of each input.",
        )
    ]


def _datatype(tensor: Tensor) -> str:
    """Returns KServe's name of a type: BYTES for TYPE_STRING, else what follows TYPE_."""
    return "BYTES" if tensor.data_type == "TYPE_STRING" else tensor.data_type.removeprefix("TYPE_")


def _text(tensor: Tensor) -> str:
    return f"{_datatype(tensor)} {list(tensor.dims)}"


def _unknown(name: str, model: str, signature: Mapping[str, Tensor]) -> Problem:
    return _input_problem(
        f"The request has the input '{name}', which '{model}' has not.", f"Its inputs are {', '.join(signature)}."
    )


def _input_problem(what: str, fix: str) -> Problem:
    return Problem("payload-input", what, "Triton answers 400: a request has exactly the model's inputs.", fix)


def _shape_problem(what: str, fix: str) -> Problem:
    return Problem("payload-shape", what, "Triton answers 400: the shapes must fit.", fix)


def _unreadable(what: str) -> Problem:
    return Problem(
        "payload-unreadable",
        f"The request {what}.",
        "Triton answers 400: a body is KServe v2 JSON.",
        'Write {"inputs": [{"name": ..., "shape": [...], "datatype": ..., "data": [...]}]}, or a row of texts.',
    )


def _too_large(size: int) -> Problem:
    return Problem(
        "payload-too-large",
        f"The request has {size:,} bytes.",
        f"SageMaker takes {MAX_BODY_BYTES:,} bytes at most and refuses the request.",
        "Send fewer rows, or the binary form, which is smaller than JSON for numbers.",
    )


def _finding(file: Path, problem: Problem, lines: list[int | None]) -> Finding:
    again = f" So do {len(lines) - 1} more lines." if len(lines) > 1 else ""
    return Finding(
        code=problem.code,
        severity="error",
        what=problem.what + again,
        file=file.name,
        line=lines[0],
        why=problem.why,
        fix=problem.fix,
    )
