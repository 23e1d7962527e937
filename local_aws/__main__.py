"""`python -m local_aws`: an AWS account on this machine, serving until it is stopped.

stdout: the exports to use, once it is ready. stderr: what it does. Ctrl-C and SIGTERM stop it and all it started.
"""

import argparse
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

from local_aws import machine
from local_aws.account import Account, Settings
from local_aws.exports import as_shell, exports
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from local_aws.sagemaker.model_host import say
from local_aws.server import AccountServer
from workloads import ROOT, ProjectError

DEFAULT_PORT = 5055
TOOLCHAIN_VARIABLE = "LOCAL_AWS_TRITON_VENV"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    toolchain = Path(os.environ.get(TOOLCHAIN_VARIABLE) or DEFAULT_TOOLCHAIN)
    account = Account(Settings(state=options.state.resolve(), region=options.region, toolchain=toolchain))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        _serve(account, options.port, stop)
    except ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _serve(account: Account, port: int, stop: threading.Event) -> None:
    settings = account.settings
    account.install()
    try:
        server = AccountServer(account, port)
        # What a killed account left behind; the port is ours, so no other account is using it.
        shutil.rmtree(settings.state / "models", ignore_errors=True)
        server.start()
        print(as_shell(exports(server.port, settings.region)), flush=True)
        say(
            f"account {settings.account_id}, {settings.region}, http://localhost:{server.port}; state: {settings.state}"
        )
        say(f"measures on {machine.description()}; Ctrl-C stops it and all it started")
        stop.wait()
        say("stopping")
        server.close()
    finally:
        account.close()
    say("stopped; nothing is left running")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m local_aws",
        description="An AWS account on this machine: moto for the control plane, a real Triton behind every endpoint, "
        "Inference Recommender jobs run for real. Prints the exports to use; serves until stopped.",
        epilog=f"{TOOLCHAIN_VARIABLE} names the virtual environment with nvidia-pytriton (default: .venv-triton).",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}; 0 picks a free one")
    parser.add_argument(
        "--state",
        type=Path,
        default=ROOT / ".local_aws",
        metavar="DIR",
        help="logs and job folders; default .local_aws",
    )
    parser.add_argument("--region", default="us-east-1", help="default us-east-1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
