"""Searches the configuration with the highest capacity within a latency limit. Pure: `SendProbe` is its only port.

1. The first configuration that keeps the limit leads. Steps of the rate find its capacity.
2. Each other one gets a short probe at the leader's rate. Most are overloaded or late there and drop out. One that
   seems better is probed until its capacity is roughly known, and leads if it is higher.
3. The answers per minute of an overloaded server are its maximum, whatever its queue delay. Configurations that this
   rules out get no probe.
4. In rounds, the contenders are probed below and above their capacity, twice as long in each round. Those clearly below
   the leader drop out (successive elimination: Even-Dar, Mannor and Mansour, JMLR 7, 2006), then the lower half
   (sequential halving: Karnin, Koren and Somekh, ICML 2013), until two are left and the winner is known.

One configuration of each family comes first, in order of cores, so that bounds are known early. Rounds alternate their
direction, so that few configurations are loaded. The search assumes a machine of constant speed: a slow minute may rule
out a configuration wrongly. The result states the confidence in the winner over the runner-up only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf, sqrt

from inference_recommender.capacity.rate_at_limit import RateAtLimit
from inference_recommender.capacity.search import Bottleneck
from inference_recommender.capacity.statistics import Limit
from inference_recommender.tune.probe_counts import ProbeCounts, estimate
from inference_recommender.tune.space import ServingConfiguration

SendProbe = Callable[[ServingConfiguration, float, float], ProbeCounts]
"""(configuration, arrivals per minute, seconds) → counts. Raises `Bottleneck` and `ConfigurationRefused`."""


class ConfigurationRefused(Exception):
    """The server rejected a configuration. The message is the reason."""


LATE_EXPECTED, LIMITS = 3.0, 10.0
"""Length of a screening probe: this many late requests at the limit's rate, and at least this many latency limits."""
FIRST_ROUND, MOST_ROUNDS = 2.0, 7
"""Length of the first round's probes in screening probes, and the maximum number of rounds."""
LOOKS, LENGTH = 6, 4.0
"""Maximum number of probes for a new leader's capacity, and their length in screening probes."""
ROUGHLY, WELL = 0.1, 0.05
"""Half the interval over the capacity at which a new leader, and the winner, is known."""
PROMISING = 1.05
"""A challenger may lead if its capacity seems higher than the leader's by this factor."""
COARSE, FINE, LEAST_STEP, FAR = 4.0, 1.5, 1.1, 3.0
"""Factors of the rate while a configuration keeps the limit: with a latency below it by the factor `FAR`, near it, and
the smallest one if the generator cannot follow."""
NARROW = 2.0
"""The bracket within which probes go to the estimate."""
SIDES = 1 - 0.03, 1 + 0.03
"""Probes alternate below and above the capacity."""
NOT_BELOW = 1.08
"""A configuration is not probed further than this factor below the leader's capacity."""
WHILE_S, FAST = 60.0, 1.25
"""A leader probed for less than `WHILE_S` rules out others by its rate over `FAST` only."""
BOUND_MARGIN = 0.05
"""Share by which a server's maximum may exceed the measured one."""
START_PER_MINUTE, SLOWEST_PER_MINUTE, MOST_PER_MINUTE = 600.0, 60.0, 6e7


class EndReason(Enum):
    """Why a search ended."""

    RESOLVED = "the best is known"
    UNRESOLVED = "all rounds were over"
    TIME = "the time was over"
    NOTHING_KEEPS = "no configuration keeps the limit, at 60 a minute or more"
    BOTTLENECK = "the generator was the bottleneck"
    INTERRUPTED = "it was interrupted"


@dataclass(slots=True)
class Entrant:
    """A configuration in the race and its probes."""

    configuration: ServingConfiguration
    probes: list[ProbeCounts] = field(default_factory=list)
    out: str = ""
    """Why it dropped out; empty for a contender."""
    estimate: RateAtLimit | None = None

    @property
    def duration_s(self) -> float:
        return sum((each.duration_s for each in self.probes), 0.0)

    @property
    def rate(self) -> float:
        return self.estimate.rate if self.estimate else 0.0

    @property
    def cautious(self) -> float:
        """A rate that it very likely sustains. Lower after a short time, in which the machine may have been fast."""
        if self.estimate is None:
            return 0.0
        if self.duration_s < WHILE_S:
            return self.rate / FAST
        return max(self.estimate.low, self.rate / NOT_BELOW)

    def drop_below(self, leader: "Entrant") -> None:
        """Drops out if it is clearly below the leader."""
        if self.estimate is not None and self.estimate.high < leader.cautious:
            self.out = f"lower: its capacity is at most {self.estimate.high:,.0f} a minute"

    def is_known_within(self, share: float) -> bool:
        """Returns whether half the interval is at most this share of the capacity."""
        return self.estimate is not None and self.estimate.high - self.estimate.low <= 2 * share * self.rate


class _Ended(Exception):
    """Its argument is the `EndReason`."""


@dataclass(slots=True)
class Race:
    """One search for a limit with a latency. Rates are per minute."""

    configurations: Sequence[ServingConfiguration]
    send: SendProbe
    limit: Limit
    shortest_s: float = 0.0
    """Seconds of the shortest probe."""
    longest_s: float = inf
    """Seconds of all probes together."""
    entrants: list[Entrant] = field(init=False)
    leader: Entrant | None = None
    requests: int = 0
    spent_s: float = 0.0
    reason: EndReason = EndReason.INTERRUPTED
    complaint: str = ""
    """Why the generator was the bottleneck, if it was."""

    def __post_init__(self) -> None:
        self.entrants = [Entrant(configuration=each) for each in self.configurations]

    def run(self) -> EndReason:
        """Searches to the end. `entrants` and `leader` have the result, also of an early end."""
        try:
            self._screen()
            self.reason = self._halve()
        except _Ended as ended:
            (self.reason,) = ended.args
        except Bottleneck as bottleneck:
            self.complaint = str(bottleneck)
            self.reason = EndReason.BOTTLENECK
        return self.reason

    def _screen(self) -> None:
        for entrant in self._families_first():
            try:
                if self.leader is None:
                    self._first(entrant)
                else:
                    self._challenge(entrant, self.leader)
            except ConfigurationRefused as refused:
                entrant.out = f"refused: {refused}"
            except Bottleneck as bottleneck:
                if self.leader is None:
                    raise
                entrant.out = f"not judged: {bottleneck}"
        if self.leader is None:
            raise _Ended(EndReason.NOTHING_KEEPS)

    def _challenge(self, entrant: Entrant, leader: Entrant) -> None:
        """Probes an entrant at a rate that the leader sustains, unless a bound rules it out."""
        family = (each for each in self.entrants if each.configuration.family == entrant.configuration.family)
        ceilings = (seen.ceiling_per_minute for each in family for seen in each.probes)
        ceiling = max(filter(None, ceilings), default=inf)
        if ceiling * (1 + BOUND_MARGIN) < leader.cautious:
            entrant.out = f"bounded: its family answered at most {ceiling:,.0f} a minute when overloaded"
            return
        self._look(entrant, leader.cautious, 1.0)
        if not entrant.out and entrant.rate > PROMISING * leader.rate:
            self._lead(entrant)

    def _families_first(self) -> list[Entrant]:
        """Returns the first configuration of all, then one of each family, then the others."""
        heads = {each.configuration.family: each for each in reversed(self.entrants)}

        def place(entrant: Entrant) -> tuple[bool, bool, int]:
            is_head = entrant is heads[entrant.configuration.family]
            return entrant is not self.entrants[0], not is_head, -entrant.configuration.parallelism * is_head

        return sorted(self.entrants, key=place)

    def _first(self, entrant: Entrant) -> None:
        """Searches the capacity from the start rate on. The entrant leads if it has one."""
        rate = START_PER_MINUTE
        seen = self._look(entrant, rate, 1.0)
        step = COARSE
        while self._keeps(seen) and rate * step <= MOST_PER_MINUTE and step >= LEAST_STEP:
            is_far = seen.latency_ms is not None and seen.latency_ms * FAR <= self.limit.bound_ms
            step = step if is_far else min(step, FINE)
            try:
                seen = self._look(entrant, rate * step, 1.0)
            except Bottleneck:  # the server may reach the limit before the generator does
                step = sqrt(step)
                continue
            rate *= step
        while not self._keeps(seen) and not any(map(self._keeps, entrant.probes)):
            if rate <= SLOWEST_PER_MINUTE:
                entrant.out = f"late: it does not keep the limit at {rate:,.0f} a minute"
                return
            rate = max(rate / COARSE, SLOWEST_PER_MINUTE)
            seen = self._look(entrant, rate, 1.0)
        self._lead(entrant)

    def _lead(self, entrant: Entrant) -> None:
        """Measures an entrant's capacity roughly. It leads if that is the highest; the first one leads at once."""
        self.leader = self.leader or entrant
        for look in range(LOOKS):
            if entrant.out or entrant.is_known_within(ROUGHLY):
                break
            self._look(entrant, self._aim(entrant) * SIDES[look % 2], LENGTH)
        if not entrant.out and (self.leader is None or entrant.rate > self.leader.rate):
            self.leader = entrant

    def _halve(self) -> EndReason:
        """Probes the contenders in longer and longer rounds, and drops the lower ones."""
        for number in range(MOST_ROUNDS):
            contenders = [each for each in self.entrants if not each.out]
            for entrant in contenders[:: -1 if number % 2 else 1]:
                try:
                    for side in SIDES:
                        if not entrant.out:
                            self._look(entrant, self._aim(entrant) * side, FIRST_ROUND * 2**number)
                except Bottleneck as bottleneck:
                    if entrant is self.leader:
                        raise
                    entrant.out = f"not judged: {bottleneck}"
            # Those clearly below the leader drop out, then the lower half; two stay.
            ranked = sorted((each for each in contenders if not each.out), key=lambda each: each.rate, reverse=True)
            self.leader = leader = ranked[0]
            for place, entrant in enumerate(ranked[1:], start=1):
                entrant.drop_below(leader)
                if not entrant.out and place >= max(2, (len(ranked) + 1) // 2):
                    entrant.out = f"lower: in the lower half of round {number + 1}, with {entrant.rate:,.0f} a minute"
            if sum(not each.out for each in ranked) <= 2 and leader.is_known_within(WELL):
                return EndReason.RESOLVED
        return EndReason.UNRESOLVED

    def _look(self, entrant: Entrant, rate: float, length: float) -> ProbeCounts:
        """Sends a probe, and drops the entrant if it is clearly below the leader."""
        screening_s = max(LATE_EXPECTED / self.limit.allowed / rate * 60, LIMITS * self.limit.bound_ms / 1000)
        duration_s = max(screening_s * length, self.shortest_s)
        if self.spent_s + duration_s > self.longest_s:
            raise _Ended(EndReason.TIME)
        try:
            seen = self.send(entrant.configuration, rate, duration_s)
        except Bottleneck:  # perhaps only for a moment
            seen = self.send(entrant.configuration, rate, duration_s)
        self.spent_s += seen.duration_s
        self.requests += seen.sent
        entrant.probes.append(seen)
        entrant.estimate = estimate(entrant.probes, self.limit)
        if self.leader is not None and entrant is not self.leader:
            ceiling = inf if seen.ceiling_per_minute is None else seen.ceiling_per_minute
            if ceiling * (1 + BOUND_MARGIN) < self.leader.cautious:
                entrant.out = f"overloaded: at {rate:,.0f} a minute it answered {ceiling:,.0f}"
            else:
                entrant.drop_below(self.leader)
        return seen

    def _aim(self, entrant: Entrant) -> float:
        """Returns the most informative rate: between a rate within the limit and one above it, then the estimate."""
        under = max((each.invocations_per_minute for each in entrant.probes if self._keeps(each)), default=0.0)
        failed = [each.invocations_per_minute for each in entrant.probes if not self._keeps(each)]
        over = min((rate for rate in failed if rate > under), default=inf)
        if under and over == inf:
            return under * FINE
        if under and over / under > NARROW:
            return sqrt(under * over)
        return max(entrant.rate, self.leader.rate / NOT_BELOW) if self.leader else entrant.rate

    def _keeps(self, seen: ProbeCounts) -> bool:
        return seen.late_share <= self.limit.allowed
