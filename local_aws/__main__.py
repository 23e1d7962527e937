"""`python -m local_aws`: an AWS account on this machine.

It prints the exports to standard output when it is ready, and writes them to the state folder until it ends. They hold
its key, which is new at each start. Standard error is its log. Ctrl-C and SIGTERM stop the account and its processes.
"""

import argparse
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_aws import machine
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from local_aws.state_folder import PRIVATE, StateFolder
from workloads import ROOT
from workloads.program import exit_code

if TYPE_CHECKING:
    from local_aws.account import Account

OPEN_FILES = 8192
HIGHEST_PORT = 65535
MOST_SERVERS = 64
TOOLCHAIN_VARIABLE = "LOCAL_AWS_TRITON_VENV"
EXAMPLES = f"""\
examples:
  python -m local_aws                                  serve on a free port, until Ctrl-C
  source .local_aws/exports                            in another terminal: use it there
  python -m local_aws --port 5055 --state /tmp/account serve on a port of your choice, with logs and jobs elsewhere

{TOOLCHAIN_VARIABLE} names the virtual environment with nvidia-pytriton (default: .venv-triton).
--root DIR before the other options names the repository. See docs/local-account.md.
"""
log = logging.getLogger("local_aws")


def main(arguments: list[str] | None = None, **parts: Any) -> int:
    """Serves until Ctrl-C or SIGTERM. `parts` are the fields of `AccountSettings` that a rehearsal replaces."""
    options = parser().parse_args(arguments)
    from local_aws.account import Account  # --help is quick without moto
    from local_aws.account_settings import AccountSettings
    from local_aws.quotas import new_account

    _log_to_stderr()
    os.umask(PRIVATE)  # logs, models and jobs are for their owner only
    _allow_open_files()
    toolchain = Path(os.environ.get(TOOLCHAIN_VARIABLE) or DEFAULT_TOOLCHAIN)
    account = Account(
        AccountSettings(
            state=options.state.resolve(),
            region=options.region,
            toolchain=toolchain,
            most_servers=options.servers,
            quick=options.pace == "quick",
            quotas=new_account() if options.quotas == "new-account" else {},
            **parts,
        )
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with StateFolder.take(account.settings.state) as folder:
        _serve(account, folder, options.port, stop)
    return 0


def _serve(account: "Account", folder: StateFolder, port: int, stop: threading.Event) -> None:
    from local_aws.process.triton import remove_leftovers
    from local_aws.server import AccountServer, as_shell, exports

    settings = account.settings
    account.install()
    try:
        server = AccountServer(account, port)
        folder.remove_models()
        remove_leftovers()
        account.environment.update(exports(server.port, settings.region, server.keys))
        server.start()
        exported = as_shell(account.environment)
        folder.write_exports(exported)
        print(exported, flush=True)
        url = account.environment["AWS_ENDPOINT_URL"]
        log.info(f"account {settings.account_id}, {settings.region}, {url}; state: {settings.state}")
        log.info(f"measures on {machine.description()}; Ctrl-C stops it and its processes")
        log.info(
            f"use it: `source {folder.exports_file}` in another terminal, then `cdk deploy` or "
            "`python -m inference_recommender`"
        )
        log.info("only the key of those exports can call it. See docs/local-account.md")
        stop.wait()
        log.info("stopping")
        server.close()
    finally:
        account.close()
    log.info("stopped; nothing is left running")


def _allow_open_files() -> None:
    """Raises the limit of open files: a connection is one, and so is each large object of S3."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("local_aws: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"got '{text}'. Allowed: {low} to {high}")
        return int(text)

    return read


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m local_aws",
        description="An AWS account on this machine: moto provides the control plane, a real Triton serves every "
        "endpoint, and Inference Recommender jobs send real load. Prints the exports; serves until stopped.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port", type=_number(0, HIGHEST_PORT), default=0, help="default: a free one, which the exports name"
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=ROOT / ".local_aws",
        metavar="DIR",
        help="logs, job folders and exports, for one account at a time; default .local_aws",
    )
    parser.add_argument(
        "--servers",
        type=_number(1, MOST_SERVERS),
        default=1,
        metavar="N",
        help="most servers of a variant, which answer for all of its instances (default 1)",
    )
    parser.add_argument(
        "--pace",
        choices=("aws", "quick"),
        default="aws",
        help="aws (default): the limits that AWS documents for the traffic of jobs, and service metrics each "
        "minute; quick: any traffic, and service metrics each second",
    )
    parser.add_argument(
        "--quotas",
        choices=("none", "new-account"),
        default="none",
        help="none (default): no limits; new-account: few CPU instances, no accelerators, no processing jobs",
    )
    parser.add_argument("--region", default="us-east-1", help="default us-east-1")
    return parser


def run() -> int:
    """The console command."""
    return exit_code(main)


if __name__ == "__main__":
    sys.exit(run())
