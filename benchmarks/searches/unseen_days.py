"""Policies of `simulate` on days that they were not chosen on: the WorldCup 98 trace.

    python benchmarks/searches/unseen_days.py --counts invocation_count.csv

The file is of github.com/nimamahmoudi/worldcup98-dataset. The trace is scaled so that its highest minute needs
`INSTANCES` instances. Each is an M/M/1 queue with P99 = 50 ms at `CAPACITY` a minute, which is known. `optimised` is
what `simulate --optimise` chooses on the `CHOSEN_ON` days before. The constants of `growth` were chosen on the first
three weeks of June 1998, so the days from 22 June on are unseen. Exits with 1 if the best policy is within the
tolerance of 5 minutes on fewer than 95 % of the days, or costs more than 1.25 × perfect foresight.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
from inference_recommender.simulate.curve import MOST_IN_TIME, queue_curve
from inference_recommender.simulate.functions import BUILT_IN
from inference_recommender.simulate.policy import Policy, Timing
from inference_recommender.simulate.policy_search import PolicySearch
from inference_recommender.simulate.seeds import SimulationCase, Tolerance, workers
from inference_recommender.simulate.trace import following
from inference_recommender.simulate.unseen import DAYS_WITHIN, judge, rise_that_tracking_misses
from scripts.convert_trace import convert
from workloads import LatencyObjective

INSTANCES, LEAST, CAPACITY = 40, 2, 60_000
OBJECTIVE = LatencyObjective(percentile="P99", model_latency_ms=50.0, peak_invocations_per_minute=INSTANCES * CAPACITY)
CHOSEN_ON, DAYS = 14, 21
UNSEEN_FROM = date(1998, 6, 22)
COST = 1.25
SEEDS = range(3)
TARGET_SHARE = 0.6
LINE = "{:12} {:>9} {:>13} {:>10}  {}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--counts", type=Path, default=Path("build/invocation_count.csv"))
    parser.add_argument("--from", dest="first", type=date.fromisoformat, default=UNSEEN_FROM, metavar="DATE")
    options = parser.parse_args(arguments)
    cell = f"{DAYS} days from {options.first} on"
    if not options.counts.exists():
        judged = [Goal(cell=cell, limit=DAYS_WITHIN, note=f"{options.counts} is missing, see --help")]
        return goals.finish("searches/unseen_days", (), {}, judged)
    before = convert(options.counts, options.first - timedelta(days=CHOSEN_ON), CHOSEN_ON)
    unseen = convert(options.counts, options.first, DAYS)
    scale = INSTANCES * CAPACITY / 60 / float(unseen.rates.max())
    before, unseen = (replace(each, rates=each.rates * scale) for each in (before, unseen))
    unseen = following(unseen, before)
    case = SimulationCase(
        traffic=before,
        curve=queue_curve(CAPACITY / 60, OBJECTIVE, MOST_IN_TIME),
        timing=Timing(),
        tolerance=Tolerance(),
    )
    tracking = Policy(
        target_invocations_per_instance=TARGET_SHARE * CAPACITY, min_capacity=LEAST, max_capacity=2 * INSTANCES
    )
    unseen_case = replace(case, traffic=unseen)
    print(rise_that_tracking_misses(unseen_case, tracking) or "Target tracking can follow the rises.")
    policies = {"optimised": optimised(case, tracking), "recommended": tracking}
    policies |= {name: replace(tracking, function=name) for name in BUILT_IN}
    print(LINE.format("policy", "days", "× foresight", "hours", "settings"))
    results = {}
    for name, policy in policies.items():
        results[name] = found = judge(unseen_case, policy, SEEDS, LEAST, lambda _: None)
        share, cost = f"{found.days_within} of {DAYS}", f"{found.cost_over_foresight:.2f}"
        print(LINE.format(name, share, cost, f"{found.instance_hours:,.0f}", policy.text), flush=True)
    best = max(results.values(), key=lambda each: (each.holds, -each.cost_over_foresight))
    judged = [
        Goal(cell=f"{cell}: share within the tolerance", figure=best.days_within / DAYS, limit=DAYS_WITHIN),
        Goal(cell=f"{cell}: cost over perfect foresight", figure=best.cost_over_foresight, limit=COST, at_most=True),
    ]
    return goals.finish("searches/unseen_days", (), {"seeds": len(SEEDS)}, judged)


def optimised(case: SimulationCase, today: Policy) -> Policy:
    """Returns what `simulate --optimise` chooses."""
    with workers(case, 1000) as pool:
        search = PolicySearch(
            case=case, today=today, given=(), least=LEAST, seeds=range(1), workers=pool, done=lambda _: None
        )
        return search.run().chosen.policy


if __name__ == "__main__":
    sys.exit(main())
