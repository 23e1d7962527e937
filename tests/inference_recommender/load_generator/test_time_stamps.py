"""Files of recorded arrivals: what a line may be, and each bad line with its number."""

from pathlib import Path

import pytest

from inference_recommender.load_generator.load_plan import Arrivals, arrival_times, payload_numbers
from inference_recommender.load_generator.time_stamps import read_stamps
from tests.builders import message_of
from workloads import ArrivalProcess, UsageError

SECONDS = [f"{1.7e9 + number / 4}" for number in range(100)]


@pytest.mark.parametrize(
    "lines",
    [
        SECONDS,
        ["time", *SECONDS, ""],
        [f'{{"time": {each}}}' for each in SECONDS],
        [f"2023-11-14T22:13:{20 + number / 4:08.5f}Z" for number in range(100)],
    ],
)
def test_times_are_iso_8601_or_seconds_a_line_or_json(tmp_path: Path, lines: list[str]) -> None:
    file = tmp_path / "arrivals.csv"
    file.write_text("\n".join(lines))
    stamps_s = read_stamps(file)
    assert stamps_s.tolist() == pytest.approx([1.7e9 + number / 4 for number in range(100)])


@pytest.mark.parametrize("line", ["{},{}", '{{"time": {}, "length": {}}}'])
def test_a_request_has_the_payload_of_the_nearest_size_to_its_recorded_length(tmp_path: Path, line: str) -> None:
    """A thousand requests of rising length, nearly all of which are sent."""
    file = tmp_path / "arrivals.csv"
    file.write_text("\n".join(line.format(number, number) for number in range(1000)), "utf-8")
    process = ArrivalProcess(process="replay", file=str(file))
    arrivals = Arrivals(invocations_per_minute=60_000, duration_in_seconds=0.998, process=process)
    numbers, count = payload_numbers(arrivals, [900, 10, 300]), len(arrival_times(arrivals))
    nearest = [1] * 156 + [2] * 445 + [0] * 399
    assert numbers in (nearest[:count], nearest[1 : 1 + count])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["2", "1"], ":2: is earlier than the line before it. Sort the file by time."),
        (
            ["1,", "2,5"],
            ":1: got '1,', which has no time. A line is 2026-11-22T13:00:00.25Z or {\"time\": 1795352400.25}.",
        ),
        (["1", "nan"], ":2: got 'nan', which has no time."),
        (["1", "2,5"], ":2: every line has a length, or none has. This one differs."),
        (['{"at": 1}'], ":1: got '{\"at\": 1}', which has no time."),
        (["1", "1", "2"], ": has 3 time stamps. Allowed: 100 or more, of different times. Record for longer."),
        (["1"] * 200, ": has 200 time stamps. Allowed: 100 or more, of different times."),
    ],
)
def test_a_bad_file_is_rejected_with_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    file = tmp_path / "arrivals.csv"
    file.write_text("\n".join(lines))
    assert message_of(UsageError, read_stamps, file).startswith(f"{file}{message}")
