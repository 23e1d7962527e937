"""Recorded arrivals: a file of time stamps, one request a line, in order.

A CSV file has a column of times and may have a heading. JSON lines have the key `time`. A time is in ISO 8601
(2026-11-22T13:00:00.25Z; without a zone it is UTC) or in seconds since 1970. A second column or the key `length` has
the bytes of each request.
"""

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from inference_recommender.capacity.arrivals import fit
from inference_recommender.capacity.statistics import Floats
from workloads import ArrivalProcess, LatencyObjective, UsageError

FEWEST = 100
"""Time stamps; fewer have no shape."""
EXAMPLES = '2026-11-22T13:00:00.25Z or {"time": 1795352400.25}'


def read_stamps(file: Path) -> Floats:
    """Returns the seconds since 1970, ascending. Raises `UsageError`, which names file and line."""
    return read_recording(file)[0]


def read_recording(file: Path) -> tuple[Floats, Floats | None]:
    """Returns the time stamps, and the requests' lengths in bytes if the file has them. Raises as `read_stamps`."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}. Give a file of time stamps.") from error
    stamps: list[float] = []
    lengths: list[float] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and not any(map(str.isdigit, line))):
            continue
        stamp, length = _read(file, number, line.strip())
        if stamps and stamp < stamps[-1]:
            raise UsageError(f"{file}:{number}: is earlier than the line before it. Sort the file by time.")
        stamps.append(stamp)
        lengths += [] if length is None else [length]
        if len(lengths) not in (0, len(stamps)):
            raise UsageError(f"{file}:{number}: every line has a length, or none has. This one differs.")
    if len(stamps) < FEWEST or stamps[0] == stamps[-1]:
        raise UsageError(
            f"{file}: has {len(stamps)} time stamps. Allowed: {FEWEST} or more, of different times. Record for longer."
        )
    return np.array(stamps), np.array(lengths) if lengths else None


def arrivals_of(objective: LatencyObjective, folder: Path) -> ArrivalProcess:
    """Returns the objective's arrival process. Its file of time stamps is in the workload's `folder`; the path is then
    absolute. Raises `UsageError` as `read_stamps`.
    """
    process = objective.arrivals
    if process.file is None:
        return process
    file = (folder / process.file).resolve()
    read_stamps(file)
    return process.model_copy(update={"file": str(file)})


def fitted(arrivals: ArrivalProcess, rate_per_minute: float) -> ArrivalProcess:
    """Returns the process itself, or the one that fits its recorded arrivals when they are replayed at a rate."""
    if arrivals.file is None:
        return arrivals
    found = fit(read_stamps(Path(arrivals.file)))
    if found.process.burst_s is None:
        return found.process
    burst_s = found.process.burst_s * found.rate_per_s * 60 / rate_per_minute
    return found.process.model_copy(update={"burst_s": burst_s})


def _read(file: Path, number: int, text: str) -> tuple[float, float | None]:
    try:
        if text.startswith("{"):
            line = json.loads(text)
            time, length = line["time"], line.get("length")
        else:
            time, comma, after = text.partition(",")
            length = after if comma else None
        return parsed_time(str(time))[0], None if length is None else float(length)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{file}:{number}: got '{text[:80]}', which has no time. A line is {EXAMPLES}.") from error


def parsed_time(text: str) -> tuple[float, str]:
    """Returns seconds since 1970, and the UTC offset as it was written, "" for none. Raises `ValueError`."""
    try:
        seconds = float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=at.tzinfo or UTC).timestamp(), at.strftime("%z")
    if not math.isfinite(seconds):
        raise ValueError(f"{text} is no time")
    return seconds, "seconds since 1970"
