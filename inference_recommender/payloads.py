"""Request bodies for a workload's texts, the archive of them that a job takes, and answers read back. Pure."""

import gzip
import io
import json
import tarfile
from collections.abc import Sequence


def request_body(text: str) -> bytes:
    """One KServe v2 JSON request: `text` as a batch of one."""
    tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    return json.dumps({"inputs": [tensor]}, ensure_ascii=False).encode()


def answers(response_body: bytes) -> list[str]:
    """The texts of a KServe v2 JSON response's first output."""
    return [str(text) for text in json.loads(response_body)["outputs"][0]["data"]]


def payload_archive(texts: Sequence[str]) -> bytes:
    """A tar.gz with one request body per file. The same texts give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for number, text in enumerate(texts):
            body = request_body(text)
            member = tarfile.TarInfo(f"payload-{number:05d}.json")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return gzip.compress(plain.getvalue(), mtime=0)
