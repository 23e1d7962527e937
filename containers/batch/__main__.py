"""The batch program's command line. Standard output is the summary, one JSON document; progress goes to standard error.

Exit codes: 0 done; 1 more bad rows than --max-bad-share, or files that do not hold the input's rows; 2 usage, input, or
an output of another job; 3 the model, a worker, S3 or the disk refuses; 70 unforeseen, a log is named; 130 interrupted,
finished chunks are kept.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from ..errors import INTERRUPTED, ContainerError, exit_code_of
from . import __doc__ as usage
from .arguments import add_max_bad_share, exit_code, positive, shard
from .job import Options, run
from .storage import write_to


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    parsed = parser.parse_args(arguments)
    options = Options(
        model=parsed.model,
        input=parsed.input,
        output=parsed.output,
        workers=parsed.workers,
        shard=parsed.shard,
        chunk_rows=parsed.chunk_rows,
        batch_rows=parsed.batch_rows,
    )
    try:
        summary = run(options, os.environ, _tell)
        if parsed.summary:
            write_to(_summary_file(parsed.summary, parsed.shard), json.dumps(summary.document()).encode())
    except ContainerError as error:
        _tell(str(error))
        return error.exit_code
    except OSError as error:
        _tell(f"{error}. Finished chunks are kept: the same command goes on where this one stopped.")
        return 3
    except KeyboardInterrupt:
        _tell("Interrupted. Finished chunks are kept: the same command goes on where this one stopped.")
        return INTERRUPTED
    print(json.dumps(summary.document()))
    return exit_code(summary.bad_share, parsed.max_bad_share)


def _summary_file(place: str, shard: tuple[int, int]) -> str:
    return f"{place}shard-{shard[0] + 1}-of-{shard[1]}.json" if place.endswith("/") else place


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}", description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", required=True, help="folder of the built model, or a Triton repository; or its .tar.gz, or s3://"
    )
    parser.add_argument("--input", required=True, help="file or folder of JSON lines, or s3://")
    parser.add_argument("--output", required=True, help="folder of this batch alone, or s3://")
    parser.add_argument("--workers", type=positive, help="processes, one core each (default: every core)")
    parser.add_argument(
        "--shard",
        type=shard,
        default=(0, 1),
        metavar="I/N",
        help="1/4 is the first of four; `hosts` is this host of a SageMaker processing job",
    )
    parser.add_argument("--chunk-rows", type=positive, default=Options.chunk_rows, help="rows of a file (default 4096)")
    parser.add_argument("--batch-rows", type=positive, help="rows of an inference (default: the model's)")
    add_max_bad_share(parser)
    parser.add_argument(
        "--summary",
        help="file, or s3:// object, that the summary is written to as well; after a / it gets the shard's name",
    )
    return parser


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program is ending: a second signal must not cut the end short
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(exit_code_of(main))
