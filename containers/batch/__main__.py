"""The batch program's command line. Standard output is the summary, one JSON document; standard error has progress.

Exit codes: 0 done; 1 more bad rows than --max-bad-share, or files that lack rows of the input; 2 usage, input, or an
output of another job; 3 the model, a worker, S3 or the disk fails; 70 internal error, a log is named; 130 interrupted,
finished chunks are kept.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from ..container_errors import INTERRUPTED, ContainerError, exit_code_of
from . import __doc__ as usage
from .account import add_max_bad_share, exit_code
from .job import BatchOptions, run
from .storage import write_to

RESUME = "Finished chunks are kept. Run the same command again to continue."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    options = BatchOptions(**vars(parser.parse_args(arguments)))
    try:
        summary = run(options, os.environ, _log)
        document = json.dumps(summary.document())
        if place := options.summary:
            index, count = options.shard
            write_to(f"{place}shard-{index + 1}-of-{count}.json" if place.endswith("/") else place, document.encode())
    except ContainerError as error:
        _log(str(error))
        return error.exit_code
    except OSError as error:
        _log(f"{error}. {RESUME}")
        return 3
    except KeyboardInterrupt:
        _log(f"Interrupted. {RESUME}")
        return INTERRUPTED
    print(document)
    return exit_code(summary.bad_share, options.max_bad_share)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}", description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", required=True, help="folder of the built model or Triton repository, its .tar.gz, or s3://"
    )
    parser.add_argument("--input", required=True, help="file or folder of JSON lines, or s3://")
    parser.add_argument("--output", required=True, help="folder of this batch only, or s3://")
    parser.add_argument("--workers", type=_positive, help="processes, one core each (default: all cores)")
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="I/N", help="1/4 is the first of four")
    parser.add_argument("--chunk-rows", type=_positive, default=4096, help="rows per file (default 4096)")
    parser.add_argument("--batch-rows", type=_positive, help="rows per inference (default: the model's)")
    add_max_bad_share(parser)
    parser.add_argument(
        "--summary", help="also write the summary to this file or s3:// object, after a / as shard-I-of-N.json"
    )
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def _shard(text: str) -> tuple[int, int]:
    """Reads 1/4 as (0, 4)."""
    index, count = map(int, text.split("/"))
    if not 1 <= index <= count:
        raise ValueError
    return index - 1, count


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program ends: a second signal must not cut that short
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(exit_code_of(main))
