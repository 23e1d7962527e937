"""The tools of CodeBuild's image from this machine: Python, Node.js, Git and the AWS CLI.

Each build has its own virtual environment, in which uv replaces pip: it checks the same hashes of the same locks and
reuses its cache. The programs in `stand_ins/` come first on PATH.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workloads import ROOT, Unavailable

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Builds share this machine's cores, so OpenMP gets one thread in each."""
STAND_INS = ROOT / "scripts" / "rehearsal" / "stand_ins"
NETWORK = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""The only variables of this machine that builds get: those for package registries."""
PIP = '''"""Runs uv in place of pip."""

import os
import sys

DROPPED = {"--disable-pip-version-check"}
OTHER = {"--ignore-installed": ["--reinstall"], "--force-reinstall": ["--reinstall", "--offline"]}
command, *arguments = sys.argv[1:]
arguments = [word for each in arguments if each not in DROPPED for word in OTHER.get(each, [each])]
os.execv(os.environ["REHEARSAL_UV"], ["uv", "pip", command, "--python", sys.executable, *arguments])
'''


@dataclass(frozen=True, slots=True)
class Machine:
    """`tools` holds the package caches and links to programs that all builds share."""

    tools: Path
    uv: Path

    @classmethod
    def make(cls, tools: Path) -> "Machine":
        """Raises `Unavailable` if this machine lacks a program of CodeBuild's image."""
        uv = shutil.which("uv", path=f"{ROOT / 'build' / 'venv-lock' / 'bin'}:{os.environ['PATH']}")
        if uv is None:
            raise Unavailable("uv is missing. Run `make rehearse-release`, which installs it.")
        programs = tools / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("git", "node", "npm", "npx", "aws"):
            link = programs / name
            link.unlink(missing_ok=True)
            link.symlink_to(_program(name))
        return cls(tools, Path(uv))

    def environment(self, build: Path, log: Path) -> dict[str, str]:
        """Makes the build's virtual environment and returns its variables. Stand-ins write to `log`."""
        python = build / "python"
        self._make_environment(python)
        npm = build / "npm"
        path = [STAND_INS, python / "bin", npm / "bin", self.tools / "bin", "/usr/local/bin", "/usr/bin", "/bin"]
        return {
            **{name: os.environ[name] for name in NETWORK if name in os.environ},
            **dict(_registries()),
            **ONE_THREAD,
            "PATH": ":".join(map(str, path)),
            "STAND_INS_LOG": str(log),
            "REHEARSAL_UV": str(self.uv),
            "REHEARSAL_PYTHON": sys.executable,
            "REHEARSAL_AWS": str(self.tools / "bin" / "aws"),
            "UV_CACHE_DIR": str(self.tools / "uv"),
            "UV_NO_CONFIG": "1",
            "UV_LINK_MODE": "hardlink",
            "npm_config_prefix": str(npm),
            "npm_config_cache": str(self.tools / "npm"),
            "npm_config_prefer_offline": "true",
            "npm_config_update_notifier": "false",
            "PYTHONDONTWRITEBYTECODE": "1",
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
            "COLUMNS": "120",
        }

    def _make_environment(self, folder: Path) -> None:
        base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        command: list[str | Path] = [self.uv, "venv", "--quiet", "--no-config", "--python", base, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"uv could not make a Python environment: {done.stderr.strip()}")
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "pip").mkdir()
        (packages / "pip" / "__init__.py").touch()
        (packages / "pip" / "__main__.py").write_text(PIP)
        pip = folder / "bin" / "pip"
        pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
        pip.chmod(0o755)


def _program(name: str) -> Path:
    """Returns the path of a program; a version manager's shim would need a home folder."""
    places = [ROOT / ".venv-aws-cli" / "bin", Path(sys.executable).parent, *map(Path, os.environ["PATH"].split(":"))]
    for place in places:
        if "shims" not in place.parts and os.access(place / name, os.X_OK):
            return (place / name).absolute()
    raise Unavailable(f"{name} is missing on this machine. CodeBuild's image has it.")


def _registries() -> Iterator[tuple[str, str]]:
    """Yields this machine's package registries as variables of uv and npm."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
    for key, _, value in (line.partition("=") for line in lines):
        if name := names.get(key.rpartition(".")[2]):
            yield name, value.strip("'\"").replace("\\n", " ").strip()
    yield "UV_INDEX_STRATEGY", "unsafe-best-match"
    configured = Path.home() / ".npmrc"
    if configured.exists():
        yield "npm_config_userconfig", str(configured)
