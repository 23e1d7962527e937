"""The folder of `tune`: its plan, and every probe in order.

The search depends only on the results of its probes. To continue, it runs again from its beginning, and `resumed`
returns the recorded probes before it sends new ones.
"""

import json
from collections.abc import Callable
from pathlib import Path

from inference_recommender.run_folder import RunFolder
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import ConfigurationRefused, SendProbe
from inference_recommender.tune.result import TuneResult
from inference_recommender.tune.space import LeftOut, ServingConfiguration
from workloads import UsageError, Workload
from workloads.document import Document
from workloads.errors import InvalidDocument
from workloads.files import replace_text

PLAN, PROBES, RESULT, PATCH = "tune.json", "probes.jsonl", "result.json", "patch.toml"


class TunePlan(Document):
    """Contents of tune.json."""

    workload: str
    configurations: tuple[ServingConfiguration, ...]
    left_out: tuple[LeftOut, ...]
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
        self.keep_bytes("payloads.tar.gz", payloads)
        plan.write_json(self.path / PLAN)

    def plan(self) -> TunePlan:
        """Raises `UsageError` or `InvalidDocument`."""
        if not (self.path / PLAN).exists():
            raise UsageError(f"--resume: {self} is not a folder of tune: it has no {PLAN}.")
        return TunePlan.from_json(self.path / PLAN)

    @property
    def payload_file(self) -> Path:
        return self.path / "payloads.tar.gz"

    def lines(self) -> list[ProbeLine]:
        """Returns the probes, without an incomplete last line."""
        file = self.path / PROBES
        if not file.exists():
            return []
        texts = file.read_text("utf-8").splitlines()
        try:
            json.loads(texts[-1] if texts else "{}")
        except ValueError:
            texts.pop()
        return [ProbeLine.from_json_text(file, text) for text in texts]

    def append(self, line: ProbeLine) -> None:
        with (self.path / PROBES).open("a", encoding="utf-8") as file:
            file.write(line.model_dump_json() + "\n")

    def rewrite(self, lines: list[ProbeLine]) -> None:
        """Replaces the file of probes."""
        replace_text(self.path / PROBES, "".join(each.model_dump_json() + "\n" for each in lines))

    def keep_result(self, result: TuneResult, patch: str | None) -> None:
        result.write_json(self.path / RESULT)
        if patch is not None:
            replace_text(self.path / PATCH, patch)


def resumed(folder: TuneFolder, send: SendProbe, on_probe: Callable[[ProbeLine, int], None]) -> SendProbe:
    """Returns a probe that reads the folder's results first, then sends new probes and records them.

    `on_probe` receives each new probe and its number. Raises `InvalidDocument` if the recorded probes differ from
    those of the search.
    """
    known = folder.lines()
    folder.rewrite(known)
    count = 0

    def probe(configuration: ServingConfiguration, rate: float, duration_s: float) -> ProbeCounts:
        nonlocal count
        count += 1
        if count <= len(known):
            line = known[count - 1]
            if (line.label, line.invocations_per_minute, line.duration_s) != (configuration.label, rate, duration_s):
                problem = f"probe {count} is not the one that this version of tune makes there; start a new search."
                raise InvalidDocument(folder.path / PROBES, [problem])
        else:
            line = _send(send, configuration, rate, duration_s)
            folder.append(line)
            on_probe(line, count)
        if line.counts is None:
            raise ConfigurationRefused(line.refused or "")
        return line.counts

    return probe


def _send(send: SendProbe, configuration: ServingConfiguration, rate: float, duration_s: float) -> ProbeLine:
    line = ProbeLine(label=configuration.label, invocations_per_minute=rate, duration_s=duration_s)
    try:
        return line.model_copy(update={"counts": send(configuration, rate, duration_s)})
    except ConfigurationRefused as refused:
        return line.model_copy(update={"refused": str(refused)})
