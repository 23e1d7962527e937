"""Microseconds to encode and decode KServe v2 messages: `inference_recommender.kserve` beside tritonclient.

Both run in turn in this process, five rounds. A ratio above 1 means that tritonclient takes longer.

  python benchmarks/kserve_codec.py
"""

import argparse
import json
import statistics
import sys
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput

sys.path.insert(0, str(Path(__file__).parents[1]))
from inference_recommender import kserve

ROUNDS, CALLS = 5, 300
ARRAYS = {"one text": np.array([["running sheos"]], dtype=object), "16 x 128 ids": np.ones((16, 128), dtype=np.int64)}
Pair = tuple[str, Callable[[], object], Callable[[], object]]


def pairs() -> Iterator[Pair]:
    """Yields the name of a case, our call and tritonclient's."""
    for name, array in ARRAYS.items():
        for binary in (True, False):
            form = "binary" if binary else "JSON"
            ours = partial(kserve.encode, {"X": array}, binary=binary)
            yield f"encode {name}, {form}", ours, encode_theirs(array, binary)
            content, size = response(array, binary)
            yield f"decode {name}, {form}", decode_ours(content, size), decode_theirs(content, size)


def encode_theirs(array: np.ndarray, binary: bool) -> Callable[[], object]:
    def encode() -> object:
        tensor = InferInput("X", list(array.shape), "BYTES" if array.dtype == object else "INT64")
        tensor.set_data_from_numpy(array, binary_data=binary)
        return InferenceServerClient.generate_request_body([tensor])

    return encode


def response(array: np.ndarray, binary: bool) -> tuple[bytes, int | None]:
    """Returns a response with one tensor, and the size of its header."""
    request = kserve.encode({"X": array}, binary=binary)
    head = request.content[: request.header_size]
    document = json.loads(head)
    header = json.dumps({"outputs": document["inputs"]}).encode()
    return header + request.content[len(head) :], len(header) if binary else None


def decode_ours(content: bytes, size: int | None) -> Callable[[], object]:
    return lambda: kserve.read_outputs(content, size)["X"]


def decode_theirs(content: bytes, size: int | None) -> Callable[[], object]:
    return lambda: InferenceServerClient.parse_response_body(content, header_length=size).as_numpy("X")


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"{'':30}{'ours µs':>9}{'tritonclient µs':>17}{'ratio':>8}")
    for name, ours, theirs in pairs():
        rounds = [[timeit.timeit(call, number=CALLS) / CALLS * 1e6 for call in (ours, theirs)] for _ in range(ROUNDS)]
        mine, other = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(second / first for first, second in rounds)
        print(f"{name:30}{mine:>9.1f}{other:>17.1f}{ratio:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
