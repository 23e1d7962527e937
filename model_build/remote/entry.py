"""The program of a processing job: unpack the source, make a Python environment, build, leave the output for upload.

    python3 entry.py WORKLOAD VARIANT RUNTIME [PUBLISHED]

It needs only Python 3.8 and `containers.archive_reader`, because any image's Python starts it. TensorRT, ONNX Runtime
and TorchScript builds download a Python and the packages of requirements/build.txt; they use trtexec and the CUDA and
TensorRT libraries of the image. Neuron builds run on the image's Python and torch, with a few more packages. The reason
of a failure goes to /opt/ml/output/message, of which SageMaker shows the first kilobyte. A traceback goes to the job's
log, because no file outlives the container.

Exit codes: the build's own; 3 the installation, the disk or the network failed; 70 internal error.

It has not run in these images yet. Tests run the unpacking, the installation for Neuron (on plain Pythons 3.10 and
3.12) and the reporting. The code that compiles for Inf1 is limited to the Python 3.10 of its image.
"""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

from containers.archive_reader import ArchiveRefused, unpack  # uploaded beside this program

PYTHON = "3.11"
ON_THE_IMAGES_PYTHON = ("neuron", "neuronx")
TRTEXEC = "/usr/src/tensorrt/bin"
CUDA_COMPAT = (
    "usr/local/cuda/compat/lib.real",
    "usr/local/cuda/compat/lib",
    "usr/local/cuda/compat",
    "usr/local/cuda-*/compat",
)
"""Folders with a libcuda.so.1 for older drivers: lib.real in NVIDIA's images, whose entrypoint links lib to it; compat
in CUDA's package."""
DRIVER = "proc/driver/nvidia/version"
CUDA_INIT = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
MESSAGE_BYTES = 1000
SOURCE = "source/source.tar.gz"
TIMING_CACHES = "build/timing_caches"
BUILD_LOGS = "build/**/.compiled/*/build.log"
BUILDING = "model_build"
UNAVAILABLE, UNFORESEEN = 3, 70


class BuildStepFailed(Exception):
    """A failed gate and a crash of Python both exit with 1; the first line distinguishes them."""

    def __init__(self, what: str, status: int, said: str, *, crashed: bool) -> None:
        super().__init__(f"{what} {'crashed' if crashed else 'ended'} with exit status {status}:\n{said}")
        self.exit_code = UNFORESEEN if crashed or status < 0 else status if what == BUILDING else UNAVAILABLE


def main(arguments: list[str], system: Path = Path("/")) -> int:
    """Builds and returns the exit code. `system` is where the file system begins, for tests."""
    workload, variant, runtime, *published = arguments
    processing = system / "opt/ml/processing"
    work, message = processing / "work", system / "opt/ml/output/message"
    try:
        if runtime == "tensorrt" and (problem := driver_problem(system, dict(os.environ))) is not None:
            tell(message, problem)
            return UNAVAILABLE
        with (processing / SOURCE).open("rb") as source:
            unpack(source, work)
        python = work / ".venv/bin/python"
        for command in install_commands(work, runtime, os.environ.get("CUDA_VERSION", "")):
            step("Installing", command, work, dict(os.environ))
        build = [str(python), "-m", "model_build", "build", workload, "--target", variant]
        build += [part for name in published for part in ("--published", name)]
        step(BUILDING, build, work, build_environment(dict(os.environ), system))
        root = work.joinpath(*(part for name in published for part in ("build", "published", name)))
        leave(work, root / "build" / workload / variant, processing / "output")
    except BuildStepFailed as error:
        for log in work.glob(BUILD_LOGS) if error.exit_code == UNFORESEEN else ():
            print(log.read_text("utf-8", "replace"), file=sys.stderr)
        tell(message, str(error))
        return error.exit_code
    except ArchiveRefused as refused:
        tell(message, f"{SOURCE}: {refused}. Start the build again: it uploads it anew.")
        return UNAVAILABLE
    except OSError as error:
        tell(message, str(error))
        return UNAVAILABLE
    except Exception as error:
        traceback.print_exc()
        tell(message, f"Unforeseen {type(error).__name__}: {error}. The traceback is in the job's log.")
        return UNFORESEEN
    return 0


def install_commands(work: Path, runtime: str, cuda: str) -> list[list[str]]:
    """Installs uv first, outside every environment, because an image's Python may be closed to pip.

    `cuda` is the image's CUDA_VERSION, whose major the bindings to CUDA and TensorRT must have.
    Everything comes as wheels that are compared with the hashes of a lock. Of an interpreter uv has the hash itself.
    """
    uv, venv = f"{work}/.uv/bin/uv", f"{work}/.venv"
    locked = ["--require-hashes", "--only-binary", ":all:", "--no-deps"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *locked, "--target", f"{work}/.uv"]
    get_uv = [*pip, "--requirement", f"{work}/requirements/uv.txt"]
    install = [uv, "pip", "install", "--quiet", "--python", f"{venv}/bin/python", *locked]
    if runtime in ON_THE_IMAGES_PYTHON:
        return [
            get_uv,
            [uv, "venv", "--quiet", "--python", sys.executable, "--system-site-packages", venv],
            [*install, "--requirements", f"{work}/model_build/remote/neuron-requirements.txt"],
        ]
    quantiser = ["modelopt"] if runtime == "tensorrt" else []
    locks = [f"{work}/requirements/{name}.txt" for name in ("build", *quantiser, "torch-cpu")]
    commands = [
        get_uv,
        [uv, "venv", "--quiet", "--python", PYTHON, venv],
        [*install, *(part for lock in locks for part in ("--requirements", lock)), "--torch-backend", "cpu"],
    ]
    if runtime == "tensorrt":  # what runs engines in the parity gate, in the version of the image's trtexec
        triton = f"{work}/containers/triton"
        bindings = f"{triton}/{'gpu-cuda12' if cuda.startswith('12.') else 'gpu'}-requirements.txt"
        commands += [["sh", f"{triton}/check-tensorrt", bindings], [*install, "--requirements", bindings]]
    return commands


def driver_problem(system: Path, environment: dict[str, str]) -> str | None:
    """Returns why the host's driver cannot run the image's CUDA. None: it starts, or no driver or libcuda was found.

    FAILING_DRIVERS is JSON: driver branch on which the image fails → tag of the newest Triton that starts there.
    """
    if (driver := host_driver(system)) is None:
        return None
    fails = f"The host's NVIDIA driver {driver} does not run the image's CUDA {environment.get('CUDA_VERSION', '')}"
    elsewhere = "or build on an EC2 instance with a newer driver."
    failing = json.loads(environment.get("FAILING_DRIVERS", "{}"))
    if tag := failing.get(driver.partition(".")[0]):
        return f'{fails}. Triton {tag} runs on it: set hosting.triton_version = "{tag}", {elsewhere}'
    command = [sys.executable, "-c", CUDA_INIT]
    run = subprocess.run(command, env=build_environment(environment, system), capture_output=True, encoding="utf-8")
    if (code := run.stdout.strip()) not in ("", "0"):
        return f"{fails}: cuInit returns {code}. Set an older hosting.triton_version, {elsewhere}"
    return None


def host_driver(system: Path) -> str | None:
    """Returns the version of the host's NVIDIA driver, which its kernel module writes."""
    file = system / DRIVER
    found = re.search(r"\b(\d{3,}\.[\d.]+\d)\b", file.read_text("utf-8")) if file.exists() else None
    return found[1] if found else None


def build_environment(environment: dict[str, str], system: Path) -> dict[str, str]:
    """Adds trtexec to the path, and CUDA's forward compatibility if the driver is older than the image's CUDA."""
    found = dict(environment)
    found["PATH"] = os.pathsep.join(filter(None, [environment.get("PATH", ""), TRTEXEC]))
    if (compat := compat_folder(system)) is not None:
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [compat, environment.get("LD_LIBRARY_PATH", "")]))
    return found


def compat_folder(system: Path) -> str | None:
    """Returns the folder of CUDA's compatibility libraries if the host's driver is older, and prints the decision."""
    if (driver := host_driver(system)) is None:
        return None
    for library in (found for place in CUDA_COMPAT for found in sorted(system.glob(f"{place}/libcuda.so.1"))):
        newest = re.search(r"libcuda\.so\.(\d+\.[\d.]+)$", str(library.resolve()))
        if newest is not None:
            host, image = (tuple(map(int, version.split("."))) for version in (driver, newest[1]))
            folder, older = f"/{library.parent.relative_to(system)}", host < image
            use = "older, so that is used" if older else "not older, so that is not used"
            print(f"{folder} has the libcuda of driver {newest[1]}; the host's {driver} is {use}.", flush=True)
            return folder if older else None
    print(f"The host's driver is {driver}, and no libcuda.so.1 is in {', '.join(CUDA_COMPAT)}.", flush=True)
    return None


def step(what: str, command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs a command and prints its output. Raises `BuildStepFailed` with the last lines."""
    print(f"$ {' '.join(command)}", flush=True)
    said: collections.deque[str] = collections.deque(maxlen=25)
    crashed = False
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            said.append(line)
            crashed = crashed or line.startswith("Traceback (most recent call last)")
    if process.returncode:
        raise BuildStepFailed(what, process.returncode, "".join(said), crashed=crashed)


def leave(work: Path, built: Path, output: Path) -> None:
    """Copies the artifact, its archive and the timing caches into the folder that SageMaker uploads."""
    artifact = json.loads((built / "artifact.json").read_text("utf-8"))
    output.mkdir(parents=True, exist_ok=True)
    for name in (artifact["archive"], "artifact.json"):
        shutil.copyfile(built / name, output / name)
    caches = work / TIMING_CACHES
    if caches.is_dir():
        shutil.copytree(caches, output / caches.name, dirs_exist_ok=True)


def tell(file: Path, message: str) -> None:
    """Writes the message; a long one is cut to its first line and its end, which has the reason."""
    print(message, file=sys.stderr, flush=True)
    first, _, rest = message.partition("\n")
    room = MESSAGE_BYTES - len(first.encode()) - 1
    tail = rest.encode()[-room:].decode("utf-8", "ignore")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{first}\n{tail}", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
