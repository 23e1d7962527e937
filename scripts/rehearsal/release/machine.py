"""Makes what CodeBuild's image brings of what this machine has: a clean Python, Node.js, git, the AWS CLI.

Each build gets a virtual environment of its own. `python -m pip install` in it is answered by uv, which checks the same
hashes of the same locks and links wheels that it fetched before. `stand_ins/` holds the programs that are replaced; it
comes first on PATH.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workloads import ROOT, Unavailable

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""On AWS each build has a machine. Here they share its cores, on which OpenMP's threads would spin for one another."""
STAND_INS = ROOT / "scripts" / "rehearsal" / "stand_ins"
NETWORK = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""Variables with which this machine reaches the registries of packages. Builds get them, and none of the others."""
PIP = '''"""Stands in for pip: uv installs the same locks, with the same hashes, from a cache."""

import os
import sys

DROPPED = {"--disable-pip-version-check"}
# What is installed once more was fetched before, and uv would fetch it again.
OTHER = {"--ignore-installed": ["--reinstall"], "--force-reinstall": ["--reinstall", "--offline"]}
command, *arguments = sys.argv[1:]
arguments = [word for each in arguments if each not in DROPPED for word in OTHER.get(each, [each])]
os.execv(os.environ["REHEARSAL_UV"], ["uv", "pip", command, "--python", sys.executable, *arguments])
'''


@dataclass(frozen=True, slots=True)
class Machine:
    tools: Path
    """Keeps what builds share: caches of packages, and the programs of CodeBuild's image by name."""
    uv: Path

    @classmethod
    def make(cls, tools: Path) -> "Machine":
        """Raises `Unavailable` where this machine lacks a program that CodeBuild's image has."""
        uv = shutil.which("uv", path=f"{ROOT / 'build' / 'venv-lock' / 'bin'}:{os.environ['PATH']}")
        if uv is None:
            raise Unavailable(
                "uv is missing, with which builds install their packages: `make rehearse-release` has it."
            )
        programs = tools / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("git", "node", "npm", "npx", "aws"):
            found = _program(name)
            link = programs / name
            link.unlink(missing_ok=True)
            link.symlink_to(found)
        return cls(tools, Path(uv))

    def environment(self, build: Path, log: Path) -> dict[str, str]:
        """Makes the build's virtual environment below `build`; returns PATH and what else the build's programs need.

        `log` is the file in which stand-ins note what they replaced.
        """
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
            raise Unavailable(f"No clean Python environment could be made: {done.stderr.strip()}")
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "pip").mkdir()
        (packages / "pip" / "__init__.py").touch()
        (packages / "pip" / "__main__.py").write_text(PIP)
        pip = folder / "bin" / "pip"
        pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
        pip.chmod(0o755)


def _program(name: str) -> Path:
    """Returns the program itself, because a version manager's shim needs a home that a build does not have."""
    places = [ROOT / ".venv-aws-cli" / "bin", Path(sys.executable).parent, *map(Path, os.environ["PATH"].split(":"))]
    for place in places:
        if "shims" not in place.parts and os.access(place / name, os.X_OK):
            return (place / name).absolute()
    raise Unavailable(f"{name} is missing on this machine, and CodeBuild's image has it.")


def _registries() -> Iterator[tuple[str, str]]:
    """Yields where this machine's pip and npm look for packages, in the words of uv and npm."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    pip: Mapping[str, str] = {
        key.rpartition(".")[2]: value.strip("'\"")
        for key, _, value in (x.partition("=") for x in done.stdout.splitlines())
    }
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
    for key, name in names.items():
        if key in pip:
            yield name, pip[key].replace("\\n", " ").strip()
    yield "UV_INDEX_STRATEGY", "unsafe-best-match"
    configured = Path.home() / ".npmrc"
    if configured.exists():
        yield "npm_config_userconfig", str(configured)
