"""Whether `simulate --optimise` is ever worse than the plain recommendation, and how fast a simulation is.

A service that bears `CAPACITY` invocations a minute (95 % interval `INTERVAL`) within spellcheck's objective is sized
as the recommender sizes it. For each shape of traffic, a policy is searched for it, on seeds of its own, and both
policies are simulated on `--seeds` seeds, which decide, and on as many others, which neither the search nor its
confirmation has seen. Worse is a policy that keeps the tolerance less well, or as well for more instance hours.

    python benchmarks/simulate.py [--seeds N] [SHAPE ...]

Exits with 1 where the chosen policy is worse on either. The last line is one JSON document.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass

from inference_recommender.simulate.curve import curve_of_candidate
from inference_recommender.simulate.policy import Policy
from inference_recommender.simulate.policy_result import PolicyResult, Tolerance
from inference_recommender.simulate.policy_search import PolicySearch
from inference_recommender.simulate.seeds import Processes, SimulationCase
from inference_recommender.simulate.shapes import SHAPES, ShapeName, shape
from inference_recommender.simulate.sized_service import least_instances, recommended_policy, timing_of
from inference_recommender.sizing.fleet import Demand, fleet
from workloads import Candidate, Workload, load_workload

CAPACITY, INTERVAL = 30_000.0, (28_000.0, 32_000.0)
OTHER_SEEDS = 10_000
"""The seeds that decided nothing begin here."""
YEAR_DAYS = 365


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    shape: ShapeName
    plain_kept: bool
    chosen_kept: bool
    plain_hours: float
    chosen_hours: float
    lower_bound_hours: float
    saving: float
    worse: bool
    plain_kept_on_others: bool
    chosen_kept_on_others: bool
    worse_on_others: bool
    confirmed_on: int
    policies: int
    seconds: float
    policy: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"default: {', '.join(SHAPES)}")
    parser.add_argument("--seeds", type=int, default=50, metavar="N")
    options = parser.parse_args()
    workload = load_workload("spellcheck").workload
    candidate, policy = plain(workload)
    year_s = a_year(workload, candidate, policy)
    print(f"a year of minutes: {year_s:.2f} s", flush=True)
    print("shape          plain kept  hours  chosen kept  hours   bound  saving  others  worse      s", flush=True)
    rows = []
    for name in options.shapes or SHAPES:
        row = searched(workload, candidate, policy, name, options.seeds)
        rows.append(row)
        print(line(row), flush=True)
    load = os.getloadavg()[0]
    print(json.dumps({"seeds": options.seeds, "year_s": year_s, "load": load, "rows": [asdict(row) for row in rows]}))
    return int(any(row.worse or row.worse_on_others for row in rows))


def plain(workload: Workload) -> tuple[Candidate, Policy]:
    """Returns the service, and the policy that sizing alone gives it in production."""
    sized = fleet(CAPACITY, Demand.of(workload.latency_objective), workload.sizing)
    candidate = Candidate(
        instance_type="ml.g5.xlarge",
        max_invocations_per_minute=CAPACITY,
        max_invocations_interval=INTERVAL,
        instance_count=sized.instance_count,
        autoscaling=sized.autoscaling,
        meets_objective=True,
        reason="assumed",
    )
    return candidate, recommended_policy(workload, sized.autoscaling)


def case_of(workload: Workload, candidate: Candidate, name: ShapeName, days: int | None = None) -> SimulationCase:
    objective = workload.latency_objective
    return SimulationCase(
        traffic=shape(name, objective, workload.sizing, days),
        curve=curve_of_candidate(candidate, objective),
        timing=timing_of(workload),
    )


def a_year(workload: Workload, candidate: Candidate, policy: Policy) -> float:
    """Returns the seconds that a year at one-minute resolution takes, the drawing of its traffic included."""
    case = case_of(workload, candidate, "weekly", YEAR_DAYS)
    began = time.perf_counter()
    case.run(policy, 0)
    return time.perf_counter() - began


def searched(workload: Workload, candidate: Candidate, policy: Policy, name: ShapeName, seeds: int) -> Row:
    case, tolerance = case_of(workload, candidate, name), Tolerance()
    began = time.perf_counter()
    with Processes(case, len(os.sched_getaffinity(0))) as workers:
        found = PolicySearch(
            case=case,
            today=policy,
            given=(),
            least=least_instances(workload),
            seeds=range(seeds),
            tolerance=tolerance,
            price_per_hour_usd=None,
            workers=workers,
            done=lambda _: None,
        ).run()
        took = time.perf_counter() - began
        others = [
            PolicyResult(
                policy=each,
                outcomes=workers.run(each, range(OTHER_SEEDS, OTHER_SEEDS + seeds), lambda _: None),
                minutes=found.chosen.minutes,
                price_per_hour_usd=None,
                tolerance=tolerance,
            )
            for each in (found.chosen.policy, policy)
        ]
    chosen, today = found.chosen, found.today
    return Row(
        shape=name,
        plain_kept=today.is_within_tolerance,
        chosen_kept=chosen.is_within_tolerance,
        plain_hours=today.instance_hours,
        chosen_hours=chosen.instance_hours,
        lower_bound_hours=chosen.lower_bound_hours,
        saving=1 - chosen.instance_hours / today.instance_hours,
        worse=worse(chosen, today),
        plain_kept_on_others=others[1].is_within_tolerance,
        chosen_kept_on_others=others[0].is_within_tolerance,
        worse_on_others=worse(others[0], others[1]),
        confirmed_on=len(found.held_out or ()),
        policies=len(found.tried),
        seconds=took,
        policy=chosen.policy.text,
    )


def worse(chosen: PolicyResult, today: PolicyResult) -> bool:
    """Tells whether a policy keeps the tolerance less well, or equally well at a higher cost."""
    if chosen.is_within_tolerance != today.is_within_tolerance:
        return today.is_within_tolerance
    if not today.is_within_tolerance:
        return chosen.exceeding > today.exceeding
    return chosen.instance_hours > today.instance_hours


def line(row: Row) -> str:
    return (
        f"{row.shape:14} {_yes(row.plain_kept):>10} {row.plain_hours:6,.0f} {_yes(row.chosen_kept):>12} "
        f"{row.chosen_hours:6,.0f} {row.lower_bound_hours:7,.0f} {row.saving:7.1%} "
        f"{_yes(row.chosen_kept_on_others):>7} {_yes(row.worse or row.worse_on_others):>6} {row.seconds:6.0f}"
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    sys.exit(main())
