"""The folder of `tune`: its plan, and every probe in order.

The search depends only on the results of its probes. To continue, it runs again from its beginning, and `resumed`
returns the recorded probes before it sends new ones.
"""

from collections.abc import Callable
from itertools import count

from inference_recommender.report.document import Report
from inference_recommender.run_folder import PAYLOADS, RunFolder
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import ConfigurationRefused, SendProbe
from inference_recommender.tune.space import ServingConfiguration
from workloads import Workload
from workloads.document import Document
from workloads.errors import InvalidDocument
from workloads.files import replace_text

PLAN, PROBES, RESULT, PATCH = "tune.json", "probes.jsonl", "result.json", "patch.toml"


class TunePlan(Document):
    """Contents of tune.json."""

    workload: str
    configurations: tuple[ServingConfiguration, ...]
    left_out: dict[str, tuple[str, ...]]
    """Labels of configurations that are not tried, by reason."""
    archives: dict[str, str]
    """sha256 of each target's archive."""
    instance_type: str | None
    longest_s: float


class ProbeLine(Document):
    """A probe and its result: counts, or the reason why Triton did not load the configuration."""

    label: str
    invocations_per_minute: float
    duration_s: float
    counts: ProbeCounts | None = None
    refused: str | None = None


class TuneFolder(RunFolder):
    """Files: tune.json, workload.json, payloads.tar.gz, probes.jsonl, probes/ with each one's records, triton.log,
    result.json, patch.toml."""

    def begin(self, plan: TunePlan, workload: Workload, payloads: bytes) -> None:
        self.keep_workload(workload)
        self.keep_bytes(PAYLOADS, payloads)
        plan.write_json(self.path / PLAN)

    def plan(self) -> TunePlan:
        """Raises `UsageError` or `InvalidDocument`."""
        missing = f"--resume: {self} is not a folder of tune: it has no {PLAN}."
        return TunePlan.from_json(self._existing(PLAN, missing))

    def lines(self) -> list[ProbeLine]:
        """Returns the probes, without an incomplete last line."""
        file = self.path / PROBES
        text = file.read_text("utf-8") if file.exists() else ""
        return [ProbeLine.from_json_text(file, line) for line in text.split("\n")[:-1]]

    def keep_result(self, report: Report) -> None:
        report.write_json(self.path / RESULT)
        if report.patch is not None:
            replace_text(self.path / PATCH, report.patch)

    def result(self) -> Report:
        """Raises `UsageError` if the search has no result, or `InvalidDocument`."""
        missing = f"{self} has no result yet. Continue with `python -m inference_recommender tune --resume {self}`."
        return Report.from_json(self._existing(RESULT, missing))


def resumed(folder: TuneFolder, send: SendProbe, on_probe: Callable[[ProbeLine, int], None]) -> SendProbe:
    """Returns a probe that reads the folder's results first, then sends new probes and records them.

    `on_probe` receives each new probe and its number. Raises `InvalidDocument` if the recorded probes differ from
    those of the search.
    """
    known, numbers = folder.lines(), count(1)
    replace_text(folder.path / PROBES, "".join(each.model_dump_json() + "\n" for each in known))

    def probe(configuration: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        number = next(numbers)
        if number <= len(known):
            line = known[number - 1]
            if (line.label, line.invocations_per_minute, line.duration_s) != (configuration.label, rate, duration_s):
                problem = f"probe {number} is not the one that this version of tune makes there; start a new search."
                raise InvalidDocument(folder.path / PROBES, [problem])
        else:
            line = ProbeLine(label=configuration.label, invocations_per_minute=rate, duration_s=duration_s)
            try:
                line = line.model_copy(update={"counts": send(configuration, rate, duration_s)})
            except ConfigurationRefused as refused:
                line = line.model_copy(update={"refused": str(refused)})
            with (folder.path / PROBES).open("a", encoding="utf-8") as file:
                file.write(line.model_dump_json() + "\n")
            on_probe(line, number)
        if line.counts is None:
            raise ConfigurationRefused(line.refused or "")
        return line.counts

    return probe
