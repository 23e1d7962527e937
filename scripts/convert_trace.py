"""`python -m scripts.convert_trace COUNTS`: public counts of requests per minute in the format of `simulate --trace`.

COUNTS is a CSV file of minutes (UTC) and their requests, such as invocation_count.csv of the repository
github.com/nimamahmoudi/worldcup98-dataset (WorldCup 98). A missing minute gets the count before it.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np

from inference_recommender.simulate.policy import TrafficLoad
from inference_recommender.simulate.trace import trace_csv

MINUTE = timedelta(minutes=1)


def convert(counts: Path, first: date, days: int, peak: float | None = None) -> tuple[TrafficLoad, int]:
    """Returns the minutes of `days` from `first` on, and how many were missing.

    `peak` scales the rates so that the highest minute has as many requests. Raises ValueError for other days.
    """
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    found: dict[int, float] = {}
    with counts.open(encoding="utf-8", newline="") as file:
        for number, (time, count) in enumerate(csv.reader(file), start=1):
            if number > 1:
                minute = (datetime.fromisoformat(time).replace(tzinfo=UTC) - start) // MINUTE
                if minute in found:
                    raise ValueError(f"{counts}:{number}: {time} comes twice")
                found[minute] = float(count)
    if not {0, days * 1440 - 1} <= found.keys():
        raise ValueError(f"{counts}: does not have all of the {days} days from {first} on")
    values = [found[0]]
    values += [found.get(minute, -1.0) for minute in range(1, days * 1440)]
    missing = 0
    for minute, value in enumerate(values):
        if value < 0:
            values[minute], missing = values[minute - 1], missing + 1
    rates = np.array(values) / 60
    return TrafficLoad(start=start, rates=rates * (peak / 60 / rates.max() if peak else 1.0)), missing


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
    sys.exit(main())
