"""Whether our archives would share a multi-model endpoint of SageMaker: asks the front end that Triton has for it.

  python benchmarks/multi_model.py

Loads archives as SageMaker's platform does (POST /models with an archive's hash and folder, and its name as
X-Amzn-SageMaker-Target-Model) and asks each: a model alone, as a build for a CPU, and an ensemble of steps, as a build
for a GPU, twice of one workload and once of another. That front end listens on all addresses while this runs, and loads
code for whoever asks; the local account never starts it. Prints what it answered; one JSON document on the last line.
"""

import http.client
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.plain_triton import plain_triton
from benchmarks.side_by_side import machine
from tests.local_aws.conftest import ECHO_CONFIG, ECHO_MODEL, echo_request

PORT = 18_083
TARGET = "X-Amzn-SageMaker-Target-Model"
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 8
input [{name: "TEXT" data_type: TYPE_STRING dims: [1]}]
output [{name: "OUT" data_type: TYPE_STRING dims: [1]}]
ensemble_scheduling {
  step [{
    model_name: "STEP" model_version: -1
    input_map {key: "TEXT" value: "TEXT"} output_map {key: "OUT" value: "OUT"}
  }]
}
"""
ARCHIVES = {
    "one model": ("echo",),
    "one model, of another build": ("echo",),
    "an ensemble": ("review", "review_step"),
    "an ensemble of the same workload": ("review", "review_step"),
    "an ensemble of another workload": ("intent", "intent_step"),
}
"""The model folders of each archive, the one that is asked first."""


def main() -> int:
    flags = ["--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"]
    flags += ["--allow-sagemaker=true", f"--sagemaker-port={PORT}"]
    with tempfile.TemporaryDirectory() as folder:
        root, found = Path(folder), dict[str, dict[str, tuple[int, str]]]()
        write(root / "first", "echo")
        url = f"http://127.0.0.1:{PORT}"
        with plain_triton(root / "first", default_model="echo", environment={}, flags=flags, url=url, ready="/ping"):
            for number, (name, models) in enumerate(ARCHIVES.items()):
                archive = root / "opt" / "ml" / "models" / f"hash{number}" / "model"
                write(archive, *models)
                loaded = ask("POST", "/models", name, json.dumps({"model_name": f"hash{number}", "url": str(archive)}))
                found[name] = {"load": loaded}
            for number, name in enumerate(ARCHIVES):
                found[name]["invoke"] = ask("POST", f"/models/hash{number}/invoke", name, echo_request("a"))
    for name, answers in found.items():
        print(f"{name}:", *(f"{call} {status} {told}" for call, (status, told) in answers.items()), sep="\n  ")
    print(json.dumps({"benchmark": "multi_model", **machine([]), "answers": found}))
    return 0


def write(folder: Path, whole: str, step: str | None = None) -> None:
    """Lays out an archive: one model that echoes, or an ensemble of such a step."""
    model = folder / (step or whole)
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(ECHO_CONFIG)
    (model / "1" / "model.py").write_text(ECHO_MODEL)
    if step:
        (folder / whole / "1").mkdir(parents=True)
        (folder / whole / "config.pbtxt").write_text(ENSEMBLE.replace("STEP", step))


def ask(method: str, path: str, archive: str, body: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    headers = {"Content-Type": "application/json", TARGET: f"{archive.replace(' ', '-')}.tar.gz"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    told = answer.read().decode()
    connection.close()
    return answer.status, told


if __name__ == "__main__":
    sys.exit(main())
