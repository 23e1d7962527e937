"""scripts/release/check_image.py, which build_image.sh hands to the Python of a new image."""

import ast
import os
import platform
import subprocess
from pathlib import Path

import pytest

from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain
from scripts.release import check_image
from scripts.release.check_image import NEEDED, check
from tests.builders import a_program, free_port
from tests.workloads.test_own_images import KINDS

FILE = Path(check_image.__file__)
ANSWERED = """
import sys, runpy
from pathlib import Path
file, models, port = sys.argv[1:]
print(*runpy.run_path(file)["check"]("triton-25.09-cpu", Path(models), int(port)), sep="\\n")
"""


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, but for the shell's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def refusal(kind: str, folder: Path) -> object:
    with pytest.raises(SystemExit) as ended:
        check(kind, folder / "models", 1)
    return ended.value.code


def test_it_knows_every_kind_and_parses_on_the_images_oldest_python() -> None:
    ast.parse(FILE.read_text("utf-8"), feature_version=(3, 10))
    short = {kind if kind in NEEDED else f"triton-{kind.split('-', 2)[2]}" for kind in KINDS}
    assert short == NEEDED.keys()


def test_the_batch_image_lists_its_packages(bin_folder: Path, tmp_path: Path) -> None:
    assert refusal("cpu", tmp_path) == "tritonserver is not on PATH."
    a_program(bin_folder / "tritonserver", "exit 1")
    told = check("cpu", tmp_path / "models", 1)
    assert [line.split()[0] for line in told] == ["Python", "numpy", "onnxruntime", "openvino", "tokenizers", "boto3"]


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDED, "inf1", ("numpy", "torch_neuron"))
    assert refusal("inf1", tmp_path) == "torch_neuron cannot be imported: No module named 'torch_neuron'."


def test_a_server_that_ends_is_an_error_with_its_log(bin_folder: Path, tmp_path: Path) -> None:
    a_program(bin_folder / "serve", "echo the model did not load; exit 1")
    assert refusal("triton-25.09-cpu", tmp_path) == (
        "serve did not answer /ping. The end of its log:\nthe model did not load\n"
    )


@pytest.mark.slow
@pytest.mark.integration
def test_a_triton_answers_ping_on_the_model_of_a_few_lines(bin_folder: Path, tmp_path: Path) -> None:
    """The server of .venv-triton with its own front end for SageMaker, and that environment's Python."""
    tools = TritonToolchain.locate(DEFAULT_TOOLCHAIN, platform.system(), platform.machine())
    models, scratch = tmp_path / "models", tmp_path / "scratch"
    scratch.mkdir()
    flags = (
        *(f"--model-repository={models}", f"--backend-directory={tools.lay_out_backends(scratch)}"),
        *(f"--cache-directory={tools.caches}", "--model-control-mode=explicit"),
        *("--load-model=$SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "--sagemaker-port=$SAGEMAKER_BIND_TO_PORT"),
        *("--allow-sagemaker=true", "--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"),
    )
    a_program(bin_folder / "serve", f"exec {tools.server} {' '.join(flags)}")
    environment = tools.environment(scratch)
    done = subprocess.run(
        [DEFAULT_TOOLCHAIN / "bin" / "python", "-c", ANSWERED, FILE, models, str(free_port())],
        env={**environment, "PATH": f"{bin_folder}{os.pathsep}{environment['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    names = ["Python", "numpy", "onnxruntime", "openvino", "tokenizers", "/ping"]
    assert [line.split()[0] for line in told] == names
    assert told[-1].startswith("/ping said 200 after ")
