"""Stands in for the load generator: plays a plan's traffic, and always reports the same figures.

Each second of the traffic it connects to the server, which notices one that has died. It reports a window in which
every user had `PER_USER` invocations of `LATENCY_MS`. The seconds of a job of at most `SHORT_S` pass in `HURRIED_S`
each. A longer job passes only its beginning so, then runs by the clock, so that a test can stop it. SIGTERM ends it
like the real one.
"""

import json
import signal
import sys
import threading
import time
from pathlib import Path

from urllib3.exceptions import HTTPError

from inference_recommender.load_generator import unix_socket
from inference_recommender.load_generator.load_plan import LoadPlan, TrafficPattern

LATENCY_MS = 10.0
PER_USER = 100
"""Invocations of one user in a window of one second."""
HURRIED = 10
"""The seconds at the beginning of a longer job."""
HURRIED_S = 0.02
SHORT_S = 60


def main() -> int:
    plan = LoadPlan.from_json(Path(sys.argv[1]))
    assert plan.url
    assert plan.traffic_pattern
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    invocations, reason = 0, "finished"
    most = 0
    began = time.time()
    traffic = users_by_second(plan.traffic_pattern)
    for second, users in enumerate(traffic):
        if stopping.wait(HURRIED_S if second < HURRIED or len(traffic) <= SHORT_S else 1.0):
            reason = "stopped"
            break
        if not answers(plan.url):
            reason = "target failed: connection refused"
            break
        most = max(most, users)
        invocations += users * PER_USER
        window = {"started_at": began + second, "users": users, "invocations": users * PER_USER, "errors": 0}
        print(json.dumps({"event": "window", **window, "histogram": [[LATENCY_MS, users * PER_USER]]}), flush=True)
    summary = {
        "closed_loop_invocations_per_minute": most * PER_USER * 60,
        "model_latency_ms": LATENCY_MS,
        "reason": reason,
    }
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    (out / "summary.json").write_text(json.dumps({**summary, "invocations": invocations}))
    print(json.dumps({"event": "finished", "reason": reason}), flush=True)
    return 3 if reason.startswith("target failed") else 0


def users_by_second(pattern: TrafficPattern) -> list[int]:
    if stairs := pattern.stairs:
        steps, duration = stairs.number_of_steps, stairs.duration_in_seconds
        return [(second * steps // duration + 1) * stairs.users_per_step for second in range(duration)]
    return [phase.initial_number_of_users for phase in pattern.phases for _ in range(phase.duration_in_seconds)]


def answers(url: str) -> bool:
    try:
        unix_socket.request("GET", url, timeout=30, retries=False)
    except HTTPError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
