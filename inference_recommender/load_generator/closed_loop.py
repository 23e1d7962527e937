"""Users who come and go by a schedule, each of whom sends its next request when the last one returned."""

from collections.abc import Sequence

from inference_recommender.load_generator.http import Connection
from inference_recommender.load_generator.outgoing import Outgoing
from inference_recommender.load_generator.plan import Share
from inference_recommender.load_generator.pool import Pool
from inference_recommender.load_generator.records import Records
from inference_recommender.load_generator.traffic import Schedule

PRIME = 7919
"""Users start this far apart in the payloads, so that no two send the same sequence at once."""


class ClosedLoop:
    lags_s: Sequence[float] = ()
    """A user's next request is due when the last one returns: it cannot be late."""

    def __init__(self, schedule: Schedule, outgoing: Outgoing, records: Records, share: Share) -> None:
        self.pool = Pool(outgoing, records, self._send)
        self.end_s = schedule.end_s
        self.changes_s = [change.at_s for change in schedule.changes]
        self._schedule = schedule
        self._share = share
        self._requests = outgoing.requests
        self._turns: list[int] = []
        """Of each user: the payload that comes next."""

    async def prepare(self) -> None:
        """Users connect when they join."""

    def change(self, second: float) -> None:
        count = self._share.count(self._schedule.users_at(second))
        while len(self.pool) > count:
            self.pool.close_latest()
        while len(self.pool) < count:
            of_all = len(self._turns) * self._share.of + self._share.index
            self._turns.append(of_all * PRIME % len(self._requests))
            self.pool.open(len(self._turns) - 1)

    async def end(self) -> None:
        await self.pool.drain()

    def _send(self, user: Connection) -> None:
        turn = self._turns[user.number]
        self._turns[user.number] = (turn + 1) % len(self._requests)
        user.send(user.free_since, self._requests[turn])
