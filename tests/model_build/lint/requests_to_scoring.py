"""Requests to the good miniature SCORING: some that it answers, and one for each way to get one wrong."""

import json
from collections.abc import Mapping

TENSOR: Mapping[str, object] = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["hello"]}


def body(*tensors: Mapping[str, object]) -> bytes:
    return json.dumps({"inputs": [dict(tensor) for tensor in tensors]}).encode()


GOOD_REQUESTS = {
    "one row": body(TENSOR),
    "a full batch": body({**TENSOR, "shape": [8, 1], "data": [[str(i)] for i in range(8)]}),
}
BAD_REQUESTS = {
    "no JSON": ("payload-unreadable", b'{"inputs": ['),
    "no inputs": ("payload-unreadable", b'{"instances": [["hello"]]}'),
    "no input": ("payload-input", body()),
    "another input": ("payload-input", body(TENSOR, {**TENSOR, "name": "QUERY"})),
    "another type": ("payload-type", body({**TENSOR, "datatype": "INT64", "data": [1]})),
    "no batch dimension": ("payload-shape", body({**TENSOR, "shape": [1]})),
    "another shape": ("payload-shape", body({**TENSOR, "shape": [1, 2], "data": ["a", "b"]})),
    "a shape of text": ("payload-shape", body({**TENSOR, "shape": ["1", "1"]})),
    "a batch that is too large": ("payload-batch", body({**TENSOR, "shape": [9, 1], "data": ["a"] * 9})),
}
