"""Runs a Triton whose models another process loads and unloads: `python -m local_aws.process.loadable_triton REPOSITORY
--model NAME --log FILE`.

Standard output gets one line once the model is ready: {"url": for invocations, "socket": of Triton's own HTTP API,
"header": and "key": what the API wants there to load and unload}. It serves until standard input is closed, so that it
ends with the process that started it. The container's environment variables are read from the first line of standard
input, a JSON object. Exit code 3, with a sentence on standard error: there is no Triton, or it does not start.
"""

import argparse
import json
import secrets
import sys
from pathlib import Path

from local_aws.process.triton import CONTROL_HEADER, TritonServer
from workloads import ProjectError
from workloads.program import exit_code


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m local_aws.process.loadable_triton", description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args(arguments)
    key = secrets.token_urlsafe(32)
    try:
        server = TritonServer.start(
            options.repository,
            default_model=options.model,
            environment=json.loads(sys.stdin.readline() or "{}"),
            log_file=options.log,
            control_key=key,
        )
    except ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    with server:
        told = {"url": server.invocations_url, "socket": str(server.socket), "header": CONTROL_HEADER, "key": key}
        print(json.dumps(told), flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
