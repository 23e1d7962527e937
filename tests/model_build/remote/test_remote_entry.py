"""The program in the container, on a temporary file system: installation, output and failures.

The build is a stand-in; the processes are real.
"""

import ast
import json
import sys
from pathlib import Path

import pytest

from containers import archive_reader
from inference_recommender.payloads import tar_gz
from model_build.remote import entry
from workloads import ROOT, images

BUILD = """
import json, pathlib, sys
assert sys.argv[1:] == ["build", "w", "--target", "t"], sys.argv
made = pathlib.Path("build/w/t")
made.mkdir(parents=True)
(made / "model.tar.gz").write_bytes(b"archive")
(made / "repository").mkdir()
(made / "artifact.json").write_text(json.dumps({"archive": "model.tar.gz"}))
pathlib.Path("build/timing_caches").mkdir()
pathlib.Path("build/timing_caches/8.6.cache").write_bytes(b"timings")
"""
LOCKED = "--require-hashes --only-binary :all: --no-deps"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the container's file system; installing makes an empty environment of this very Python."""
    (tmp_path / "opt/ml/processing/source").mkdir(parents=True)

    def commands(work: Path, runtime: str, cuda: str) -> list[list[str]]:
        return [[sys.executable, "-m", "venv", "--without-pip", f"{work}/.venv"]]

    monkeypatch.setattr(entry, "install_commands", commands)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # as in the job's request, so that the output is in order
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def _run(system: Path, program: str) -> int:
    source = tar_gz({"model_build/__main__.py": program.encode()})
    (system / "opt/ml/processing/source/source.tar.gz").write_bytes(source)
    return entry.main(["w", "t", "onnxruntime"], system)


def test_a_build_leaves_its_archive_and_timing_caches_for_upload(system: Path) -> None:
    assert _run(system, BUILD) == 0
    output = system / "opt/ml/processing/output"
    assert sorted(path.name for path in output.iterdir()) == ["artifact.json", "model.tar.gz", "timing_caches"]
    assert (output / "timing_caches/8.6.cache").read_bytes() == b"timings"
    assert (output / "model.tar.gz").read_bytes() == b"archive"
    assert not (system / "opt/ml/output/message").exists()


INTERNAL_ERROR = """
import pathlib, sys
log = pathlib.Path("build/w/.compiled/t/build.log")
log.parent.mkdir(parents=True)
log.write_text("Traceback of the build")
print("Unforeseen KeyError: 'x'.", file=sys.stderr)
sys.exit(70)
"""


@pytest.mark.parametrize(
    ("program", "code", "message", "log"),
    [
        pytest.param(
            "import sys\nprint('x' * 3000)\nprint('int8 failed parity: é', file=sys.stderr)\nsys.exit(1)\n",
            1,
            ("model_build ended with exit status 1:", "int8 failed parity: é"),
            "x" * 3000,
            id="a failed gate",
        ),
        pytest.param(
            "raise ValueError('a mistake')",
            70,
            ("model_build crashed with exit status 1:", "ValueError: a mistake"),
            "Traceback (most recent call last)",
            id="a crash",
        ),
        pytest.param(
            INTERNAL_ERROR,
            70,
            ("model_build ended with exit status 70:", "Unforeseen KeyError: 'x'."),
            "Traceback of the build",
            id="an internal error of the build",
        ),
    ],
)
def test_a_failure_leaves_a_message_and_a_log(
    system: Path,
    capfd: pytest.CaptureFixture[str],
    program: str,
    code: int,
    message: tuple[str, str],
    log: str,
) -> None:
    assert _run(system, program) == code
    text = (system / "opt/ml/output/message").read_bytes()
    lines = text.decode("utf-8").splitlines()
    assert len(text) <= 1024
    assert (lines[0], lines[-1]) == message
    assert log in "".join(capfd.readouterr())
    assert list((system / "opt/ml/processing").glob("output/*.json")) == []


def test_a_failed_installation_is_not_a_failed_gate(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [[sys.executable, "-c", "raise SystemExit(1)"]]
    monkeypatch.setattr(entry, "install_commands", lambda work, runtime, cuda: failing)
    assert _run(system, BUILD) == 3
    assert (system / "opt/ml/output/message").read_text("utf-8") == "Installing ended with exit status 1:\n"


def test_a_missing_source_or_artifact_is_a_failure(system: Path) -> None:
    assert entry.main(["w", "t", "onnxruntime"], system) == 3
    assert "source.tar.gz" in (system / "opt/ml/output/message").read_text("utf-8")
    assert _run(system, "") == 3
    assert "artifact.json" in (system / "opt/ml/output/message").read_text("utf-8")


def test_a_build_gets_the_python_and_the_packages_that_were_tested() -> None:
    uv, venv, install = entry.install_commands(Path("/w"), "onnxruntime", "")
    assert uv[:5] == [sys.executable, "-m", "pip", "install", "--quiet"]
    assert " ".join(uv[5:]) == f"{LOCKED} --target /w/.uv --requirement /w/requirements/uv.txt"
    assert venv == ["/w/.uv/bin/uv", "venv", "--quiet", "--python", "3.11", "/w/.venv"]
    assert " ".join(install) == (
        f"/w/.uv/bin/uv pip install --quiet --python /w/.venv/bin/python {LOCKED} --requirements "
        "/w/requirements/build.txt --requirements /w/requirements/torch-cpu.txt --torch-backend cpu"
    )


@pytest.mark.parametrize(("cuda", "name"), [("13.0.1.012", "gpu"), ("12.9.0.043", "gpu-cuda12")])
def test_engines_are_checked_by_the_tensorrt_that_built_them_on_the_images_cuda(cuda: str, name: str) -> None:
    *_, install, check, bindings = entry.install_commands(Path("/w"), "tensorrt", cuda)
    assert "/w/requirements/modelopt.txt" in install
    lock = f"/w/containers/triton/{name}-requirements.txt"
    assert (ROOT / "containers/triton" / Path(lock).name).exists()
    assert check == ["sh", "/w/containers/triton/check-tensorrt", lock]
    assert " ".join(bindings[5:]) == f"/w/.venv/bin/python {LOCKED} --requirements {lock}"


@pytest.mark.parametrize("runtime", ["neuron", "neuronx"])
def test_neuron_is_built_with_the_torch_of_its_image(runtime: str) -> None:
    _, venv, install = entry.install_commands(Path("/w"), runtime, "")
    assert venv[3:] == ["--python", sys.executable, "--system-site-packages", "/w/.venv"]
    assert install[-2:] == ["--requirements", "/w/model_build/remote/neuron-requirements.txt"]
    pinned = Path(entry.__file__).with_name("neuron-requirements.txt").read_text("utf-8")
    assert not any(line.startswith(("torch", "numpy", "tensorflow")) for line in pinned.splitlines())


@pytest.mark.parametrize(
    ("driver", "needed"),
    [("470.256.02", True), ("580.65.06", False), ("590.10.01", False)],
)
@pytest.mark.parametrize("place", ["usr/local/cuda/compat/lib.real", "usr/local/cuda-13.0/compat"])
def test_an_older_driver_than_the_images_cuda_gets_its_compatibility_libraries(
    tmp_path: Path, driver: str, needed: bool, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compat, version = tmp_path / place, tmp_path / "proc/driver/nvidia/version"
    compat.mkdir(parents=True)
    version.parent.mkdir(parents=True)
    (compat / "libcuda.so.580.65.06").touch()
    (compat / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu May  9 22:12:11 UTC 2024\n")
    found = entry.build_environment({"PATH": "/bin", "LD_LIBRARY_PATH": "/lib"}, tmp_path)
    assert found["LD_LIBRARY_PATH"] == (f"/{place}:/lib" if needed else "/lib")
    assert found["PATH"] == "/bin:/usr/src/tensorrt/bin"
    assert capsys.readouterr().out == (
        f"/{place} has the libcuda of driver 580.65.06; the host's {driver} is "
        f"{'older, so that is used' if needed else 'not older, so that is not used'}.\n"
    )


@pytest.mark.parametrize(
    ("driver", "cu_init", "message"),
    [
        (
            "470.256.02",
            "0",
            "The host's NVIDIA driver 470.256.02 does not run the image's CUDA 13.0.1. Triton 24.09 runs on it: set "
            'hosting.triton_version = "24.09", or build on an EC2 instance with a newer driver.\n',
        ),
        (
            "535.261.03",
            "803",
            "The host's NVIDIA driver 535.261.03 does not run the image's CUDA 13.0.1: cuInit returns 803. Set an "
            "older hosting.triton_version, or build on an EC2 instance with a newer driver.\n",
        ),
        ("580.65.06", "0", None),
    ],
    ids=["a branch that is known to fail", "CUDA does not start", "CUDA starts"],
)
def test_a_host_whose_driver_cannot_run_the_images_cuda_ends_the_job_before_anything_is_installed(
    system: Path, monkeypatch: pytest.MonkeyPatch, driver: str, cu_init: str, message: str | None
) -> None:
    version = system / entry.DRIVER
    version.parent.mkdir(parents=True)
    version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu May  9 22:12:11 UTC 2024\n")
    monkeypatch.setenv("FAILING_DRIVERS", json.dumps(images.failing_drivers("25.09")))
    monkeypatch.setenv("CUDA_VERSION", "13.0.1")
    monkeypatch.setattr(entry, "CUDA_INIT", f"print({cu_init})")
    (system / "opt/ml/processing/source/source.tar.gz").write_bytes(tar_gz({"model_build/__main__.py": BUILD.encode()}))
    assert entry.main(["w", "t", "tensorrt"], system) == (3 if message else 0)
    file = system / "opt/ml/output/message"
    assert (file.read_text("utf-8") if message else file.exists()) == (message or False)
    assert (system / "opt/ml/processing/work").exists() is (message is None)


def test_the_entry_needs_nothing_but_python_and_the_reader_beside_it() -> None:
    """Both parse as Python 3.8."""
    for file in (entry.__file__, archive_reader.__file__):
        tree = ast.parse(Path(file).read_text("utf-8"), feature_version=(3, 8))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        ours = {"containers.archive_reader"} if file == entry.__file__ else set()
        assert {name.split(".")[0] for name in imported - ours} <= set(sys.stdlib_module_names)


def test_a_source_that_leads_out_of_its_folder_is_refused_and_nothing_is_written(system: Path) -> None:
    (system / "opt/ml/processing/source/source.tar.gz").write_bytes(tar_gz({"../outside": b"", "inside": b""}))
    assert entry.main(["w", "t", "onnxruntime"], system) == 3
    assert (system / "opt/ml/output/message").read_text("utf-8") == (
        "source/source.tar.gz: '../outside' could lead out of the folder. Start the build again: it uploads it anew.\n"
    )
    assert sorted(path.name for path in (system / "opt/ml/processing").iterdir()) == ["source"]
