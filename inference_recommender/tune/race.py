"""Searches the configuration that bears most within a latency limit: one search over configurations and load. Pure.

`Probe` is its one port: it sends arrivals at a rate to a server with a configuration. All that the search knows comes
from there, so the same answers lead the same way (`folder` resumes by that).

1. The first configuration that keeps the limit leads; steps of the rate find where its capacity is.
2. Each other one gets a short probe at what the leader bears; most are overloaded or late there, and out. One that
   seems to bear more is probed until its capacity is roughly known, and then leads if it does.
3. Bounds: an overloaded server's answers a minute are the most of which it is capable, whatever its queue delay. What
   that rules out is not probed at all.
4. Rounds: those that are left are probed below and above their capacity, twice as long in each round. Out is what is
   surely less than the leader (successive elimination: Even-Dar, Mannor and Mansour, JMLR 7, 2006), and then the lesser
   half (sequential halving: Karnin, Koren and Somekh, ICML 2013), until two are left and the winner is known.

First comes one of each family, which differ in more than the queue delay, those that use most cores before others: so
the bounds have early what they need. Rounds go forwards and backwards in turn, so that few configurations are loaded.

It assumes that the machine stays as fast as it is: what was screened in a slow minute may be ruled out wrongly. The
result tells how sure the winner is of the runner-up, not of what was screened out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf, sqrt

from inference_recommender.capacity.limit import Limit
from inference_recommender.capacity.search import Bottleneck
from inference_recommender.tune.evidence import Estimate, Glimpse, estimate
from inference_recommender.tune.space import Configuration

Probe = Callable[[Configuration, float, float], Glimpse]
"""(configuration, arrivals per minute, seconds) → what the probe saw. Raises `Bottleneck` and `Refused`."""


class Refused(Exception):
    """The server does not take a configuration. Says why."""


LATE_EXPECTED, LIMITS = 3.0, 10.0
"""A probe of the first round lasts so long that at the limit's own rate this many requests are late, and at least so
many latency limits: a queue takes some to build up."""
FIRST_ROUND, MOST_ROUNDS = 2.0, 7
"""Length of the first round's probes, two of each contender, in those of screening; and how many rounds there are."""
LOOKS, LENGTH = 6, 4.0
"""The probes, and their length, by which a new leader's capacity is found, at most."""
ROUGHLY, WELL = 0.1, 0.05
"""Half an interval over the capacity, at which a new leader is known well enough, and the winner."""
PROMISING = 1.05
"""A challenger that seems to bear so many times as much as the leader may lead."""
COARSE, FINE, LEAST_STEP = 4.0, 1.5, 1.1
"""Steps of the rate while a configuration keeps the limit: from far away, and else; smaller ones where the generator
cannot follow."""
NARROW = 2.0
"""The bracket within which the estimate tells where to look."""
FAR = 3.0
"""Times under the limit, from which on steps are coarse."""
AROUND = 0.03
"""Share of the capacity by which probes are above and below it in turn."""
NOT_BELOW = 1.08
"""A configuration is not probed further than this factor below the leader's capacity."""
WHILE_S, FAST = 60.0, 1.25
"""Until a configuration has been probed for so long, nothing is ruled out by more than its rate over this factor."""
BOUND_MARGIN = 0.05
"""How much more than its measured ceiling a server may be capable of."""
SLOWEST_PER_MINUTE = 60.0
MOST_PER_MINUTE = 6e7


class Reason(Enum):
    """Why a search ended."""

    RESOLVED = "the best is known"
    UNRESOLVED = "its rounds were over"
    TIME = "its time was over"
    REQUESTS = "its requests were spent"
    NOTHING_KEEPS = "no configuration keeps the limit, at 60 a minute or more"
    BOTTLENECK = "the generator was the bottleneck"
    INTERRUPTED = "it was interrupted"


@dataclass(slots=True)
class Entrant:
    """A configuration in the race, and all that was seen of it."""

    configuration: Configuration
    glimpses: list[Glimpse] = field(default_factory=list)
    out: str = ""
    """Why it left the race; empty while it is in."""
    estimate: Estimate | None = None

    @property
    def requests(self) -> int:
        return sum(each.sent for each in self.glimpses)

    @property
    def duration_s(self) -> float:
        return sum(each.duration_s for each in self.glimpses)

    @property
    def rate(self) -> float:
        return self.estimate.rate if self.estimate else 0.0

    @property
    def cautious(self) -> float:
        """The rate that it surely bears, or one a little less than it seems to: early estimates are rather too high.
        Of a short while it is clearly less, which may have been a fast one of the machine.
        """
        if self.estimate is None:
            return 0.0
        if self.duration_s < WHILE_S:
            return self.rate / FAST
        return max(self.estimate.low, self.rate / NOT_BELOW)

    def is_known_within(self, share: float) -> bool:
        """Returns whether half the interval is at most this share of the capacity."""
        return self.estimate is not None and self.estimate.high - self.estimate.low <= 2 * share * self.rate


class _Ended(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


@dataclass(slots=True)
class Race:
    """One search, for a limit that has a latency. Rates are per minute."""

    configurations: Sequence[Configuration]
    probe: Probe
    limit: Limit
    start: float = 600.0
    shortest_s: float = 0.0
    """Seconds of the shortest probe."""
    longest_s: float = inf
    """Seconds of all probes together."""
    most_requests: float = inf
    entrants: list[Entrant] = field(init=False)
    leader: Entrant | None = None
    requests: int = 0
    spent_s: float = 0.0
    visits: int = 0
    """How often another configuration was loaded than the one before."""
    reason: Reason = Reason.INTERRUPTED
    complaint: str = ""
    """Why the generator was the bottleneck, where it was."""
    _loaded: Entrant | None = None

    def __post_init__(self) -> None:
        self.entrants = [Entrant(configuration=each) for each in self.configurations]

    def run(self) -> Reason:
        """Searches to the end; whatever ends it, `entrants` and `leader` say how far it came."""
        try:
            self._screen()
            self.reason = self._halve()
        except _Ended as ended:
            self.reason = ended.reason
        except Bottleneck as bottleneck:
            self.complaint = str(bottleneck)
            self.reason = Reason.BOTTLENECK
        return self.reason

    @property
    def contenders(self) -> list[Entrant]:
        return [each for each in self.entrants if not each.out]

    def _screen(self) -> None:
        for entrant in self._families_first():
            try:
                if self.leader is None:
                    self._first(entrant)
                else:
                    self._challenge(entrant, self.leader)
            except Refused as refused:
                entrant.out = f"refused: {refused}"
            except Bottleneck as bottleneck:
                if self.leader is None:
                    raise
                entrant.out = f"not judged: {bottleneck}"
        if self.leader is None:
            raise _Ended(Reason.NOTHING_KEEPS)

    def _challenge(self, entrant: Entrant, leader: Entrant) -> None:
        """Probes an entrant at what the leader surely bears, unless a bound rules it out."""
        ceiling = self._ceiling_over(entrant.configuration)
        if ceiling * (1 + BOUND_MARGIN) < leader.cautious:
            entrant.out = f"bounded: its like answered at most {ceiling:,.0f} a minute when overloaded"
            return
        self._look(entrant, leader.cautious, 1.0)
        if not entrant.out and entrant.rate > PROMISING * leader.rate:
            self._lead(entrant)

    def _families_first(self) -> list[Entrant]:
        """Returns the first configuration of all, then one of each family, then the others."""
        first, *others = self.entrants
        seen = {first.configuration.family}
        heads: list[Entrant] = []
        rest: list[Entrant] = []
        for entrant in others:
            family = entrant.configuration.family
            (rest if family in seen else heads).append(entrant)
            seen.add(family)
        return [first, *sorted(heads, key=lambda each: -each.configuration.parallelism), *rest]

    def _first(self, entrant: Entrant) -> None:
        """Looks for the capacity from the start rate on, and lets the entrant lead where it has one."""
        rate = self.start
        seen = self._look(entrant, rate, 1.0)
        step = COARSE
        while self._keeps(seen) and rate * step <= MOST_PER_MINUTE and step >= LEAST_STEP:
            step = step if self._is_far(seen) else min(step, FINE)
            try:
                seen = self._look(entrant, rate * step, 1.0)
            except Bottleneck:  # the server may be over the limit before the generator is
                step = sqrt(step)
                continue
            rate *= step
        while not self._keeps(seen) and not any(map(self._keeps, entrant.glimpses)):
            if rate <= SLOWEST_PER_MINUTE:
                entrant.out = f"late: it does not keep the limit at {rate:,.0f} a minute"
                return
            rate = max(rate / COARSE, SLOWEST_PER_MINUTE)
            seen = self._look(entrant, rate, 1.0)
        self._lead(entrant)

    def _lead(self, entrant: Entrant) -> None:
        """Gets to know an entrant's capacity roughly, and lets it lead where that is the highest; the first one leads
        from the beginning, so that a search whose time is over names it.
        """
        self.leader = self.leader or entrant
        for look in range(LOOKS):
            if entrant.out or entrant.is_known_within(ROUGHLY):
                break
            self._look(entrant, self._aim(entrant) * self._side(look), LENGTH)
        if not entrant.out and (self.leader is None or entrant.rate > self.leader.rate):
            self.leader = entrant

    def _halve(self) -> Reason:
        """Gets to know the contenders better and better, and drops the lesser ones."""
        for number in range(MOST_ROUNDS):
            for entrant in self.contenders[:: -1 if number % 2 else 1]:
                self._look_twice(entrant, FIRST_ROUND * 2**number)
            self._drop(number + 1)
            if len(self.contenders) <= 2 and self.leader is not None and self.leader.is_known_within(WELL):
                return Reason.RESOLVED
        return Reason.UNRESOLVED

    def _look_twice(self, entrant: Entrant, length: float) -> None:
        """Probes a contender below and above its capacity."""
        for look in range(2):
            try:
                if not entrant.out:
                    self._look(entrant, self._aim(entrant) * self._side(look), length)
            except Bottleneck as bottleneck:
                if entrant is self.leader:
                    raise
                entrant.out = f"not judged: {bottleneck}"

    @staticmethod
    def _side(look: int) -> float:
        return 1 + AROUND if look % 2 else 1 - AROUND

    def _look(self, entrant: Entrant, rate: float, length: float) -> Glimpse:
        """Probes, and drops the entrant where it is surely less than the leader."""
        screening_s = max(LATE_EXPECTED / self.limit.allowed / rate * 60, LIMITS * self._limit_s)
        seen = self._see(entrant, rate, max(screening_s * length, self.shortest_s))
        entrant.estimate = estimate(entrant.glimpses, self.limit)
        if self.leader is not None and entrant is not self.leader:
            entrant.out = self._why_out(entrant, self.leader, seen)
        return seen

    def _aim(self, entrant: Entrant) -> float:
        """Returns the rate at which a probe tells most of an entrant: between one that it keeps and one that it does
        not, until these are near each other; then where its capacity seems to be."""
        rates = [each.invocations_per_minute for each in entrant.glimpses if self._keeps(each)]
        under = max(rates, default=0.0)
        failed = [each.invocations_per_minute for each in entrant.glimpses if not self._keeps(each)]
        over = min((rate for rate in failed if rate > under), default=inf)
        if under and over == inf:
            return under * FINE
        if under and over / under > NARROW:
            return sqrt(under * over)
        return max(entrant.rate, self.leader.rate / NOT_BELOW) if self.leader else entrant.rate

    def _drop(self, round_: int) -> None:
        """Drops what is surely less than the leader, then the lesser half of the rest, but keeps two."""
        ranked = sorted(self.contenders, key=lambda each: each.rate, reverse=True)
        self.leader = leader = ranked[0]
        for place, entrant in enumerate(ranked[1:], start=1):
            if entrant.estimate is not None and entrant.estimate.high < leader.cautious:
                entrant.out = f"less: it bears at most {entrant.estimate.high:,.0f} a minute"
            elif place >= max(2, (len(ranked) + 1) // 2):
                entrant.out = f"less: in the lesser half of round {round_}, with {entrant.rate:,.0f} a minute"

    def _ceiling_over(self, configuration: Configuration) -> float:
        """Returns the most that a configuration can answer by what its family could, in answers a minute; infinite
        where none of it was overloaded.
        """
        return max(
            (
                seen.ceiling_per_minute
                for each in self.entrants
                if each.configuration.family == configuration.family
                for seen in each.glimpses
                if seen.ceiling_per_minute is not None
            ),
            default=inf,
        )

    def _see(self, entrant: Entrant, rate: float, duration_s: float) -> Glimpse:
        if self._loaded is not entrant:
            self._loaded = entrant
            self.visits += 1
        if self.spent_s + duration_s > self.longest_s:
            raise _Ended(Reason.TIME)
        if self.requests + rate * duration_s / 60 > self.most_requests:
            raise _Ended(Reason.REQUESTS)
        try:
            seen = self.probe(entrant.configuration, rate, duration_s)
        except Bottleneck:  # it may have been a moment's
            seen = self.probe(entrant.configuration, rate, duration_s)
        self.spent_s += seen.duration_s
        self.requests += seen.sent
        entrant.glimpses.append(seen)
        return seen

    @staticmethod
    def _why_out(entrant: Entrant, leader: Entrant, seen: Glimpse) -> str:
        if seen.ceiling_per_minute is not None and seen.ceiling_per_minute * (1 + BOUND_MARGIN) < leader.cautious:
            rate = seen.invocations_per_minute
            return f"overloaded: at {rate:,.0f} a minute it answered {seen.ceiling_per_minute:,.0f}"
        if entrant.estimate is not None and entrant.estimate.high < leader.cautious:
            return f"less: it bears at most {entrant.estimate.high:,.0f} a minute"
        return ""

    def _keeps(self, seen: Glimpse) -> bool:
        return seen.late_share <= self.limit.allowed

    def _is_far(self, seen: Glimpse) -> bool:
        return seen.latency_ms is not None and seen.latency_ms * FAR <= self._limit_s * 1000

    @property
    def _limit_s(self) -> float:
        assert self.limit.latency_ms is not None
        return self.limit.latency_ms / 1000
