"""Distributes the files of tests over pytest-xdist's processes by room, so that what is slow to make is made once.

The files of a room share what a process makes at most once: exports of tiny models, CDK's templates and the process of
jsii behind them, a local account, the packages that only they import. A process takes the next file of a room that it
has begun; then one of a room that nobody has begun, the longest first; and in the end it helps in the others' rooms,
where help costs least, so that all processes end at about the same time. Within a room the order is that of the
collection.
"""

from collections.abc import Collection, Iterable

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

TOGETHER = {"tests/test_app.py": "tests/stacks", "tests/test_workloads_served.py": "tests/containers"}
LONGEST_FIRST = ("tests/model_build", "tests/containers", "tests/local_aws", "tests", "tests/stacks")
"""Rooms in which a process that comes to help makes again what is slow to make: in the others, help costs nothing."""


def room(file: str) -> str:
    """Returns the room of a file, by its path from the repository's root: the folder below tests/, if any."""
    folder = "/".join(file.split("/")[:2])
    return TOGETHER.get(folder, "tests" if folder.endswith(".py") else folder)


def rank(file: str) -> int:
    """Returns the place of a file's room among those that are begun first."""
    return LONGEST_FIRST.index(room(file)) if room(file) in LONGEST_FIRST else len(LONGEST_FIRST)


def next_file(waiting: Iterable[str], mine: Collection[str], begun: Collection[str]) -> str:
    """Returns the file that a process takes which has had those of `mine`; `begun` are the files of all processes."""
    my_rooms, begun_rooms = {room(file) for file in mine}, {room(file) for file in begun}

    def distance(file: str) -> tuple[int, int]:
        if room(file) in my_rooms:
            return 0, 0
        return (2, -rank(file)) if room(file) in begun_rooms else (1, 0)

    return min(waiting, key=distance)


class ByRoom(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's `loadfile`, which gives out the files in their order, with another choice of the next one."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        begun = [file for files in self.assigned_work.values() for file in files]
        file = next_file(self.workqueue, self.assigned_work[node], begun)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
