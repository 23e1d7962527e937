"""`python -m scripts.convert_trace COUNTS`: public counts of requests per minute in the format of `simulate --trace`.

COUNTS is a CSV file of minutes (UTC) and their requests, such as invocation_count.csv of the repository
github.com/nimamahmoudi/worldcup98-dataset (WorldCup 98). A missing minute gets the count before it.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from inference_recommender.simulate.trace import MINUTE, Trace, read_trace, trace_csv
from inference_recommender.simulate.tracking import DAY_MINUTES, MINUTE_S
from workloads import UsageError
from workloads.program import exit_code


def convert(counts: Path, first: date, days: int, peak: float | None = None) -> Trace:
    """Returns `days` days from `first` on. `peak` is the number of requests to scale the highest minute to.

    Raises `UsageError`.
    """
    whole = read_trace(counts, "last")  # of requests per minute
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    begin = (start - whole.start) // MINUTE
    rates = whole.rates[max(begin, 0) : begin + days * DAY_MINUTES]
    if len(rates) < days * DAY_MINUTES:
        raise UsageError(f"{counts}: does not have all of the {days} days from {first} on.")
    factor = peak / float(rates.max()) if peak else 1.0
    return replace(whole, name=f"{days} days from {first} on", start=start, rates=rates * factor / MINUTE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", type=Path, metavar="COUNTS")
    parser.add_argument("--from", dest="first", type=date.fromisoformat, required=True, metavar="DATE")
    parser.add_argument("--days", type=int, default=7, metavar="N", help="default: 7")
    parser.add_argument("--peak", type=float, metavar="N", help="requests in the highest minute; default: as recorded")
    options = parser.parse_args(arguments)
    print(trace_csv(convert(options.counts, options.first, options.days, options.peak).load(0)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
