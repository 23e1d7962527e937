"""Records what Triton's own front end for SageMaker answers, for tests/local_aws/process/test_front_end.py.

  python -m tests.local_aws.process.record_front_end

It listens on all addresses while this runs.
"""

import http.client
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.plain_triton import plain_triton
from tests.local_aws.conftest import ECHO_CONFIG, ECHO_MODEL, echo_request
from workloads import ROOT

PORT = 18_081
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
BODY = echo_request("a")
RAW = json.dumps(
    {
        "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": 5}}],
        "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
    }
)
REQUESTS: list[tuple[str, str, str, dict[str, str], str]] = [
    ("a ping", "GET", "/ping", {}, ""),
    ("a ping with another method", "POST", "/ping", {}, ""),
    ("an invocation", "POST", "/invocations", {"Content-Type": "application/json"}, BODY),
    ("an invocation without a Content-Type", "POST", "/invocations", {}, BODY),
    ("an invocation with a query", "POST", "/invocations?a=b", {}, BODY),
    ("an invocation with another method", "GET", "/invocations", {}, ""),
    ("an invocation that is put", "PUT", "/invocations", {}, BODY),
    ("a binary invocation", "POST", "/invocations", {"Content-Type": f"{BINARY}{len(RAW)}"}, RAW + "\x01\0\0\0a"),
    ("a binary invocation that is all JSON", "POST", "/invocations", {"Content-Type": f"{BINARY}{len(BODY)}"}, BODY),
    ("a json-header-size over the body's", "POST", "/invocations", {"Content-Type": f"{BINARY}99999"}, BODY),
    ("a json-header-size that is no number", "POST", "/invocations", {"Content-Type": f"{BINARY}x"}, BODY),
    ("a binary type that is not the first", "POST", "/invocations", {"Content-Type": f"x; {BINARY}4"}, BODY),
    ("the other front end's header", "POST", "/invocations", {"Inference-Header-Content-Length": "3"}, BODY),
    ("a target model", "POST", "/invocations", {"X-Amzn-SageMaker-Target-Model": "other"}, BODY),
    ("an encoding that it is said to have", "POST", "/invocations", {"Content-Encoding": "gzip"}, BODY),
    ("a wish for an encoded answer", "POST", "/invocations", {"Accept-Encoding": "gzip"}, BODY),
    ("what is no JSON", "POST", "/invocations", {}, "no"),
    ("nothing", "POST", "/invocations", {}, ""),
    ("an unknown input", "POST", "/invocations", {}, BODY.replace("TEXT", "TXET")),
    ("too many rows for the batch size", "POST", "/invocations", {}, echo_request(*"abcdefghi")),
    ("an unknown route", "GET", "/", {}, ""),
    ("a route of Triton's own API", "GET", "/v2/health/ready", {}, ""),
    ("a route that goes on", "GET", "/ping/", {}, ""),
    ("the models of a multi-model endpoint", "GET", "/models", {}, ""),
]


def main() -> int:
    flags = ["--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"]
    flags += ["--allow-sagemaker=true", f"--sagemaker-port={PORT}"]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "echo"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(ECHO_CONFIG)
        (model / "1" / "model.py").write_text(ECHO_MODEL)
        url = f"http://127.0.0.1:{PORT}"
        with plain_triton(model.parent, default_model="echo", environment={}, flags=flags, url=url, ready="/ping"):
            found = [_recorded(*each) for each in REQUESTS]
    file = ROOT / "tests" / "local_aws" / "process" / "front_end.json"
    file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


def _recorded(name: str, method: str, path: str, headers: dict[str, str], body: str) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    connection.request(method, path, body.encode("latin-1"), headers)
    answer = connection.getresponse()
    told = answer.read().decode("latin-1")
    connection.close()
    asked = {"name": name, "method": method, "path": path, "headers": headers, "body": body}
    return {**asked, "status": answer.status, "content_type": answer.headers["Content-Type"], "answer": told}


if __name__ == "__main__":
    sys.exit(main())
