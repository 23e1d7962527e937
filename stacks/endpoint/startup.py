"""How long SageMaker waits for an instance: first for the archive, then for the container's first healthy /ping.

    download = 60 s + bytes / 20 MB/s      S3 to the instance, and unpacked
    start    = 300 s + bytes / 10 MB/s     the image's own start, the model read from disk, placed and warmed up

between SageMaker's own limits, 60 and 3600 s. The rates are deliberately slow guesses, not measurements: too long a
wait delays the news of a broken model by minutes, too short a one makes a sound model fail.
"""

from dataclasses import dataclass

LEAST_S, MOST_S = 60, 3600
DOWNLOAD_S, DOWNLOAD_BYTES_PER_S = 60, 20_000_000
START_S, START_BYTES_PER_S = 300, 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupTimeouts:
    download_s: int
    start_s: int


def startup_timeouts(archive_bytes: int) -> StartupTimeouts:
    return StartupTimeouts(
        download_s=_within_limits(DOWNLOAD_S + archive_bytes // DOWNLOAD_BYTES_PER_S),
        start_s=_within_limits(START_S + archive_bytes // START_BYTES_PER_S),
    )


def _within_limits(seconds: int) -> int:
    return max(LEAST_S, min(MOST_S, seconds))
