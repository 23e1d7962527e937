"""Shared by the benchmarks: engines that take turns, each alone in a child process, and the machine they ran on.

A child is the same program run with `--child`; it prints one JSON document on the last line of its stdout.
"""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def alone(
    program: Path, *arguments: str, threads: int, python: str = sys.executable, longest_s: float | None = None
) -> Any:
    """Run `program` by itself and return the JSON document it ends with. Raises `subprocess.TimeoutExpired`."""
    print(" ".join(["…", *arguments]), file=sys.stderr)
    done = subprocess.run(
        [python, str(program), *arguments],
        env=environment(threads),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=longest_s,
    )
    return json.loads(done.stdout.splitlines()[-1])


def environment(threads: int) -> dict[str, str]:
    """Returns the environment of an engine's process."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": str(threads),
        # Threads that spin while they wait would slow whatever runs beside them.
        "OMP_WAIT_POLICY": "PASSIVE",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_OFFLINE": "1",
    }


def timed(call: Callable[[], object], *, warm_up: int, at_least: int, seconds: float) -> list[float]:
    """Returns the milliseconds of each call, `at_least` so many and for `seconds`, after uncounted `warm_up`."""
    for _ in range(warm_up):
        call()
    milliseconds: list[float] = []
    end = time.perf_counter() + seconds
    while len(milliseconds) < at_least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        milliseconds.append((time.perf_counter() - start) * 1000)
    return milliseconds


def pairs(
    first: Callable[[], object], other: Callable[[], object], *, number: int, calls: int = 10
) -> list[tuple[float, float]]:
    """Returns median milliseconds of a few calls of each, side by side, `number` of times, in changing order."""
    measured: list[tuple[float, float]] = []
    for turn in range(number):
        order = (first, other) if turn % 2 else (other, first)
        medians = [statistics.median(timed(call, warm_up=1, at_least=calls, seconds=0)) for call in order]
        measured.append((medians[0], medians[1]) if turn % 2 else (medians[1], medians[0]))
    return measured


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def machine(packages: Iterable[str]) -> dict[str, Any]:
    """Describes the machine and the versions that were measured: None for a package that is not installed here."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in packages},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    parts = (line.partition(":") for line in lines)
    fields = {name.strip(): value.strip() for name, colon, value in parts if colon}
    if "model name" not in fields:
        return platform.machine()
    widest = next((name for name in ("avx512_vnni", "avx512f", "avx2") if name in fields.get("flags", "").split()), "")
    return f"{fields['model name']} family {fields['cpu family']} {widest}".strip()
