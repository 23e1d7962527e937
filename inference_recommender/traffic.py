"""A workload's traffic profile in the API's shape, and where it leaves the service's documented limits. Pure."""

from collections.abc import Iterator
from typing import Any

from workloads import LatencyObjective, PhasedTraffic, StairTraffic

DOCUMENTED_USERS = range(1, 4)
DOCUMENTED_SPAWN_RATE = range(0, 4)
DOCUMENTED_PHASE_S = range(120, 3601)
DOCUMENTED_PERCENTILES = ("P95", "P99")
DOCUMENTED_LOAD_TEST_PERCENTILE = "P95"


def traffic_pattern(traffic: PhasedTraffic | StairTraffic) -> dict[str, Any]:
    """TrafficPattern of CreateInferenceRecommendationsJob."""
    match traffic:
        case PhasedTraffic():
            phases = [
                {
                    "InitialNumberOfUsers": phase.initial_users,
                    "SpawnRate": phase.spawn_rate_per_minute,
                    "DurationInSeconds": phase.duration_s,
                }
                for phase in traffic.phases
            ]
            return {"TrafficType": "PHASES", "Phases": phases}
        case StairTraffic():
            stairs = {
                "DurationInSeconds": traffic.duration_s,
                "NumberOfSteps": traffic.steps,
                "UsersPerStep": traffic.users_per_step,
            }
            return {"TrafficType": "STAIRS", "Stairs": stairs}


def stopping_conditions(traffic: PhasedTraffic | StairTraffic, objective: LatencyObjective) -> dict[str, Any]:
    """StoppingConditions of the API. Its latency threshold takes whole milliseconds: the objective is rounded up."""
    limit = traffic.stop.max_invocations_per_minute
    return {
        **({} if limit is None else {"MaxInvocations": limit}),
        "ModelLatencyThresholds": [
            {"Percentile": objective.percentile, "ValueInMilliseconds": -int(-objective.model_latency_ms // 1)}
        ],
        "FlatInvocations": traffic.stop.flat_invocations,
    }


def warnings(name: str, traffic: PhasedTraffic | StairTraffic, objective: LatencyObjective) -> tuple[str, ...]:
    """One sentence for each documented limit that an advanced job exceeds. AWS's own samples exceed them too."""
    found = list(_phase_warnings(name, traffic)) if isinstance(traffic, PhasedTraffic) else []
    if objective.percentile not in DOCUMENTED_PERCENTILES:
        found.append(
            f"objective.percentile is {objective.percentile}; the service documents "
            f"{' and '.join(DOCUMENTED_PERCENTILES)} for a job's latency threshold."
        )
    elif objective.percentile != DOCUMENTED_LOAD_TEST_PERCENTILE:
        found.append(
            f"objective.percentile is {objective.percentile}; the service documents "
            f"{DOCUMENTED_LOAD_TEST_PERCENTILE} for the latency threshold of an advanced job."
        )
    return tuple(found)


def _phase_warnings(name: str, traffic: PhasedTraffic) -> Iterator[str]:
    for number, phase in enumerate(traffic.phases):
        for key, value, documented in (
            ("initial_users", phase.initial_users, DOCUMENTED_USERS),
            ("spawn_rate_per_minute", phase.spawn_rate_per_minute, DOCUMENTED_SPAWN_RATE),
            ("duration_s", phase.duration_s, DOCUMENTED_PHASE_S),
        ):
            if value not in documented:
                yield (
                    f"traffic.{name}.phases.{number}.{key} is {value}; "
                    f"the service documents {documented.start} to {documented.stop - 1}."
                )
