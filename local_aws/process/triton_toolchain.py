"""Finds the Triton server in `nvidia-pytriton`'s wheel, and makes it run on this machine.

Three things are needed that pytriton's own start-up does: a folder with the Python backend and the stub of the running
Python, a path to libpython and the wheel's libraries, and the virtual environment's packages on the stub's path.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from workloads import ROOT, Unavailable

DEFAULT_TOOLCHAIN = ROOT / ".venv-triton"

_DESCRIBE = (
    "import sys, sysconfig; print(sysconfig.get_path('purelib')); print(sysconfig.get_config_var('LIBDIR'));"
    "print('%d.%d' % sys.version_info[:2])"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonToolchain:
    virtual_environment: Path
    packages: Path
    python_libraries: Path
    python_version: str

    @classmethod
    def locate(cls, virtual_environment: Path, system: str, machine: str) -> Self:
        """Raises `Unavailable` when this machine cannot run the server or does not have it."""
        if (system, machine) != ("Linux", "x86_64"):
            raise _missing(f"Triton's wheel exists for Linux x86-64 only, and this is {system} {machine}")
        # Not resolved, because the interpreter of a virtual environment is a link out of it.
        python = virtual_environment.absolute() / "bin" / "python"
        if not python.exists():
            raise _missing(f"{virtual_environment} is not a virtual environment")
        facts = subprocess.run([python, "-c", _DESCRIBE], capture_output=True, text=True, check=True).stdout.split("\n")
        tools = cls(
            virtual_environment=virtual_environment.absolute(),
            packages=Path(facts[0]),
            python_libraries=Path(facts[1]),
            python_version=facts[2],
        )
        if not tools.server.exists() or not tools._stub.exists():
            raise _missing(
                f"{virtual_environment} has no nvidia-pytriton with a stub for Python {tools.python_version}"
            )
        return tools

    @property
    def _triton(self) -> Path:
        return self.packages / "pytriton" / "tritonserver"

    @property
    def server(self) -> Path:
        return self._triton / "bin" / "tritonserver"

    @property
    def caches(self) -> Path:
        return self._triton / "caches"

    @property
    def _stub(self) -> Path:
        return self._triton / "python_backend_stubs" / self.python_version / "triton_python_backend_stub"

    def lay_out_backends(self, scratch: Path) -> Path:
        """Makes a backend directory below `scratch`: links to the Python backend's files and to the right stub."""
        backends = scratch / "backends"
        python = backends / "python"
        python.mkdir(parents=True)
        shipped = self._triton / "backends" / "python"
        for file in (shipped / "libtriton_python.so", shipped / "triton_python_backend_utils.py", self._stub):
            (python / file.name).symlink_to(file)
        return backends

    def environment(self, scratch: Path) -> dict[str, str]:
        """Returns the whole environment of the server; like a container it inherits nothing from ours."""
        return {
            "HOME": str(scratch),
            "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": f"{self.python_libraries}:{self.packages / 'nvidia_pytriton.libs'}",
            "PATH": f"{self.virtual_environment / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(self.packages),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(scratch),
            "VIRTUAL_ENV": str(self.virtual_environment),
        }


def _missing(reason: str) -> Unavailable:
    return Unavailable(
        f"There is no Triton server to answer for an endpoint: {reason}. "
        f"On Linux x86-64, `make triton` installs one; elsewhere, use a running endpoint of a real AWS account "
        f"(unset AWS_ENDPOINT_URL)."
    )
