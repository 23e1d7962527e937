"""`python -m scripts.convert_trace COUNTS`: public counts of requests per minute in the format of `simulate --trace`.

COUNTS is a CSV file of minutes (UTC) and their requests, such as invocation_count.csv of the repository
github.com/nimamahmoudi/worldcup98-dataset (WorldCup 98). A missing minute gets the count before it.
"""

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np

from inference_recommender.simulate.policy import TrafficLoad
from inference_recommender.simulate.trace import MINUTE, trace_csv
from inference_recommender.simulate.tracking import DAY_MINUTES
from workloads.program import exit_code


def convert(counts: Path, first: date, days: int, peak: float | None = None) -> tuple[TrafficLoad, int]:
    """Returns the minutes of `days` from `first` on, and how many were missing.

    `peak` scales the rates so that the highest minute has as many requests. Raises ValueError for other days.
    """
    start, minutes = datetime(first.year, first.month, first.day, tzinfo=UTC), days * DAY_MINUTES
    values = [math.nan] * minutes
    with counts.open(encoding="utf-8", newline="") as file:
        for number, (time, count) in enumerate(csv.reader(file), start=1):
            minute = (datetime.fromisoformat(time).replace(tzinfo=UTC) - start) // MINUTE if number > 1 else -1
            if 0 <= minute < minutes:
                if not math.isnan(values[minute]):
                    raise ValueError(f"{counts}:{number}: {time} comes twice")
                values[minute] = float(count)
    if math.isnan(values[0] + values[-1]):
        raise ValueError(f"{counts}: does not have all of the {days} days from {first} on")
    missing = [minute for minute, value in enumerate(values) if math.isnan(value)]
    for minute in missing:
        values[minute] = values[minute - 1]
    rates = np.array(values) / 60
    return TrafficLoad(start=start, rates=rates * (peak / 60 / rates.max() if peak else 1.0)), len(missing)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", type=Path, metavar="COUNTS")
    parser.add_argument("--from", dest="first", type=date.fromisoformat, required=True, metavar="DATE")
    parser.add_argument("--days", type=int, default=7, metavar="N", help="default: 7")
    parser.add_argument("--peak", type=float, metavar="N", help="requests in the highest minute; default: as recorded")
    options = parser.parse_args(arguments)
    try:
        load, missing = convert(options.counts, options.first, options.days, options.peak)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(trace_csv(load), end="")
    print(f"{len(load.rates):,} minutes, {missing} of them missing in {options.counts.name}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
