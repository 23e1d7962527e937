"""The program that runs Triton behind the proxy: what it lets Triton do, how both end. A script stands for Triton."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.serve_model import plan_command
from tests.local_aws.conftest import gone, wait_until
from workloads import ROOT

KEY = "the-routes-key"
WAITS = "import time; time.sleep(600)"


def serve(folder: Path, script: str) -> tuple[GuardedProcess, int]:
    """Returns the program, and the process id that it told for Triton."""
    command = plan_command(
        str(folder),
        root=str(ROOT),
        command=[sys.executable, "-I", "-S", "-c", script, str(folder)],
        environment={},
        socket=str(folder / "http"),
        model="echo",
        key=KEY,
    )
    process = GuardedProcess.start(
        command,
        environment={},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return process, json.loads(process.stdout.readline())["pid"]


def test_what_triton_makes_is_private_though_it_asks_for_more(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.chdir(sys.argv[1])\n"
        "for name, mode in (('shared', 0o644), ('group', 0o660), ('own', 0o400)):\n"
        "    os.fchmod(os.open(name, os.O_CREAT | os.O_RDWR, 0o666), mode)"
    )
    process, _ = serve(tmp_path, script)
    assert process.wait(120) == 0
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("shared", "group", "own", "plan.json")}
    assert modes == {"shared": 0o600, "group": 0o600, "own": 0o400, "plan.json": 0o600}


def test_it_ends_with_triton_and_tells_its_status(tmp_path: Path) -> None:
    process, triton = serve(tmp_path, WAITS)
    os.kill(triton, signal.SIGKILL)
    assert process.wait(120) == 128 + signal.SIGKILL


def test_triton_ends_with_the_proxy(tmp_path: Path) -> None:
    process, triton = serve(tmp_path, WAITS)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(120) == 128 + signal.SIGKILL
    wait_until(lambda: gone(triton))


def test_a_request_to_stop_reaches_triton(tmp_path: Path) -> None:
    process, triton = serve(tmp_path, WAITS)
    process.request_stop()
    assert process.wait(120) == 128 + signal.SIGTERM
    assert gone(triton)


def test_the_key_of_the_routes_is_on_no_command_line(tmp_path: Path) -> None:
    process, _ = serve(tmp_path, WAITS)
    shown = [psutil.Process(process.pid), *psutil.Process(process.pid).parents()[:1]]
    assert not any(KEY in argument for each in shown for argument in each.cmdline())
    process.stop()
