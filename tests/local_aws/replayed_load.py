"""Stands in for the load generator: plays a plan's traffic, and always reports the same figures.

Each second of the traffic it asks /ping, which notices a server that has died, and tells of a window in which every
user had `PER_USER` invocations of `LATENCY_MS`. The seconds of a job of at most `SHORT_S` pass in `HURRIED_S` each, so
that it is over at once; those of a longer one do so only at its beginning, and then pass by the clock, so that it is
still at work when a test stops it, however busy the machine is. SIGTERM ends it with what it has, as it ends the real
one.
"""

import json
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

LATENCY_MS = 10.0
PER_USER = 100
"""Invocations of one user in a window of one second."""
HURRIED = 10
"""The seconds at the beginning of a longer job."""
HURRIED_S = 0.02
SHORT_S = 60


def main() -> int:
    plan: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    invocations, reason = 0, "finished"
    most = 0
    began = time.time()
    traffic = users_by_second(plan["traffic_pattern"])
    for second, users in enumerate(traffic):
        if stopping.wait(HURRIED_S if second < HURRIED or len(traffic) <= SHORT_S else 1.0):
            reason = "stopped"
            break
        if not answers(plan["url"].replace("/invocations", "/ping")):
            reason = "target failed: connection refused"
            break
        most = max(most, users)
        invocations += users * PER_USER
        window = {"started_at": began + second, "users": users, "invocations": users * PER_USER, "errors": 0}
        print(json.dumps({"event": "window", **window, "histogram": [[LATENCY_MS, users * PER_USER]]}), flush=True)
    summary = {"max_invocations_per_minute": most * PER_USER * 60, "model_latency_ms": LATENCY_MS, "reason": reason}
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    (out / "summary.json").write_text(json.dumps({**summary, "invocations": invocations}))
    print(json.dumps({"event": "finished", "reason": reason}), flush=True)
    return 3 if reason.startswith("target failed") else 0


def users_by_second(pattern: dict[str, Any]) -> list[int]:
    if stairs := pattern.get("Stairs"):
        steps, duration = stairs["NumberOfSteps"], stairs["DurationInSeconds"]
        return [(second * steps // duration + 1) * stairs["UsersPerStep"] for second in range(duration)]
    return [phase["InitialNumberOfUsers"] for phase in pattern["Phases"] for _ in range(phase["DurationInSeconds"])]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30):
            return True
    except (OSError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    sys.exit(main())
