"""Holds what `lengths` foretells of a real Triton's capacity for other payloads to searches of that capacity.

spellcheck's build for CPUs (`make run` leaves one, or model_build) is served and surveyed as the command does it. Then
payloads are made for each shift by the workload's tokenizer, their answers as long as the model makes them: the survey
foretells how many times the capacity of the payloads theirs is, by each of its three formulas, and a capacity search
with open arrivals finds it. Latency, fit and capacity are of this machine, and of how busy it is.

    python benchmarks/lengths.py [--seconds S]

The last line is one JSON document.
"""

import argparse
import json
import math
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.capacity.search import Search, SearchResult
from inference_recommender.lengths.result import Measured, Origin, lengths_of, surface
from inference_recommender.lengths.served import Server, built_server
from inference_recommender.lengths.shifts import Bounds
from inference_recommender.lengths.surface import Sample
from inference_recommender.lengths.survey import Asked, Survey, measure
from inference_recommender.lengths.tokens import PayloadTokenizer, built_tokenizer, token_counts
from inference_recommender.load_test.load_test import machine_description
from inference_recommender.load_test.probe import GeneratorProbe
from inference_recommender.payloads import payload_archive
from workloads import LengthShift, Row, TextToText, Workload, WorkloadFolder, load_workload

WORKLOAD, TARGET = "spellcheck", "cpu"
LONG = 48
"""Tokens of the longest payloads here; the model takes 64."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90.0, metavar="S", help="of each search; default: 90")
    options = parser.parse_args()
    folder = load_workload(WORKLOAD)
    tokenizer = built_tokenizer(folder, TARGET)
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(compared(folder, tokenizer, Path(scratch), options.seconds)))
    return 0


def compared(folder: WorkloadFolder, tokenizer: PayloadTokenizer, scratch: Path, seconds: float) -> dict[str, object]:
    workload, objective = folder.workload, folder.workload.latency_objective
    model = workload.model
    assert isinstance(model, TextToText)
    kinds = {"as measured": folder.payloads(), **_shifted(tokenizer, folder.payloads())}
    archive = scratch / "payloads.tar.gz"
    archive.write_bytes(payload_archive(folder.payloads()))
    bounds = Bounds(inputs=model.max_input_tokens, outputs=model.max_output_tokens)
    with built_server(folder, TARGET, scratch, _say) as server:
        survey = Survey(post=server.post, tokenizer=tokenizer, answer=model.answer)
        asked = Asked(
            payloads=folder.payloads(),
            other_payloads=(),
            requests=20,
            load_invocations_per_minute=None,
            archive=archive,
        )
        capacities: dict[str, SearchResult] = {}
        answers: dict[str, tuple[Sample, ...]] = {}
        for name, rows in kinds.items():
            _say(name)
            answers[name] = survey.ask(rows, rounds=1)
            capacities[name] = _capacity(server, rows, scratch / str(len(capacities)), workload, seconds)
        measured = measure(survey, server, asked, bounds, _say)
    found = {}
    for name in kinds:
        whole = measured.model_copy(update={"payloads": answers["as measured"], "other_payloads": answers[name]})
        found[name] = _foretold(whole, name, workload, bounds)
    base = capacities["as measured"]
    heads = ("within limit", "service time", "full batches", "found", "between")
    print(f"{'payloads':<20}{'in':>7}{'out':>7}" + "".join(f"{head:>14}" for head in heads))
    for name, shift in found.items():
        times, between = _times(capacities[name], base)
        lengths = lengths_of(answers[name])
        print(
            f"{name:<20}{lengths.inputs.mean():>7.1f}{lengths.outputs.mean():>7.1f}{shift.scale_within_limit:>14.2f}"
            f"{shift.scale_by_service_time:>14.2f}{shift.scale_in_full_batches:>14.2f}"
            f"{times:>14}{between:>14}"
        )
    return {
        "machine": machine_description(),
        "limit_ms": objective.model_latency_ms,
        "capacities": {name: [each.invocations_per_minute, each.interval] for name, each in capacities.items()},
        "foretold": {name: shift.model_dump(mode="json") for name, shift in found.items()},
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _shifted(tokenizer: PayloadTokenizer, rows: list[Row]) -> dict[str, list[Row]]:
    counts = tokenizer.count(rows)
    p90 = token_counts(counts).p90
    asked = {
        "+50 %": [math.ceil(1.5 * each) for each in counts],
        "all at P90": [p90] * len(rows),
        f"all of {LONG} tokens": [LONG] * len(rows),
    }
    return {
        name: [tokenizer.resized(rows, place, min(tokens, tokenizer.most)) for place, tokens in enumerate(lengths)]
        for name, lengths in asked.items()
    }


def _times(found: SearchResult, base: SearchResult) -> tuple[str, str]:
    """Returns how many times the base's capacity is found, and what the two searches' intervals leave open of it."""
    rate, base_rate = found.invocations_per_minute, base.invocations_per_minute
    times = f"{rate / base_rate:.2f}" if rate and base_rate else "-"
    if found.interval is None or base.interval is None:
        return times, "-"
    (low, high), (base_low, base_high) = found.interval, base.interval
    return times, f"{low / base_high:.2f}-{high / base_low:.2f}"


def _capacity(server: Server, rows: list[Row], folder: Path, workload: Workload, seconds: float) -> SearchResult:
    """Searches the invocations a minute that the server bears of these rows within the workload's objective."""
    folder.mkdir()
    archive, objective = folder / "payloads.tar.gz", workload.latency_objective
    archive.write_bytes(payload_archive(rows))
    probe = GeneratorProbe(archive, folder, url=server.url)
    limit = Limit(percentile=objective.percentile_rank, latency_ms=objective.model_latency_ms)
    found = Search(probe=probe, limit=limit, longest_s=seconds).run()
    _say(f"{found.invocations_per_minute} invocations/min, {found.interval}: {found.reason.value}")
    return found


def _foretold(measured: Measured, name: str, workload: Workload, bounds: Bounds) -> LengthShift:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    origin = Origin(
        asked=TARGET,
        archive_sha256=None,
        measured_on="local",
        machine=machine_description(),
        measured_at=now,
        run="benchmark",
    )
    found = surface(
        workload.name,
        measured,
        origin,
        bounds,
        objective=workload.latency_objective,
        sizing=workload.sizing,
        batch=workload.serving.max_batch_size,
        invocations_per_minute=None,
        other_name=name,
    )
    return next(each for each in found.lengths.shifts if each.name == name)


if __name__ == "__main__":
    sys.exit(main())
