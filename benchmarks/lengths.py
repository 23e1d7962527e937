"""Holds what `lengths` foretells of a real Triton's capacity for other payloads to searches of that capacity.

spellcheck's build for CPUs (`make run` leaves one, or model_build) is served and surveyed as the command does it, with
one kind of payloads more, all of 48 tokens. Then the capacity of each kind is searched with open arrivals, of the
payloads as they are twice, first and last. Latency, fit and capacity are of this machine, and of how busy it is.

    python benchmarks/lengths.py [--seconds S]

The last line is one JSON document.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.capacity.search import Search, SearchResult
from inference_recommender.lengths.served import Server, built_server
from inference_recommender.lengths.shifts import Bounds, Shift, estimated, shifts
from inference_recommender.lengths.survey import Asked, Survey, measure
from inference_recommender.lengths.tokens import PayloadTokenizer, built_tokenizer
from inference_recommender.load_test.load_test import machine_description
from inference_recommender.load_test.probe import GeneratorProbe
from inference_recommender.payloads import payload_archive
from workloads import LengthShift, Row, TextToText, WorkloadFolder, load_workload

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
    workload, objective, payloads = folder.workload, folder.workload.latency_objective, folder.payloads()
    model, serving = workload.model, workload.variant(TARGET).serving
    assert isinstance(model, TextToText)
    limit = Limit(percentile=objective.percentile_rank, latency_ms=objective.model_latency_ms)
    archive = scratch / "payloads.tar.gz"
    archive.write_bytes(payload_archive(payloads))
    bounds = Bounds(inputs=model.max_input_tokens, outputs=model.max_output_tokens)
    long = Shift(
        name=f"all of {LONG} tokens", rows=[tokenizer.resized(payloads, place, LONG) for place in range(len(payloads))]
    )
    with built_server(folder, TARGET, scratch, _say) as server:
        survey = Survey(post=server.post, tokenizer=tokenizer, answer=model.answer)
        asked = Asked(
            payloads=payloads,
            others=long,
            requests=20,
            load_invocations_per_minute=None,
            archive=archive,
            at_once=serving.max_batch_size * serving.copies,
            limit=limit,
        )
        measured = measure(survey, server, asked, bounds, _say)
        answers = [each.output_tokens for each in measured.payloads]
        every = [*shifts(tokenizer, payloads, answers, bounds), long]
        capacities: list[SearchResult] = []
        for number, shift in enumerate([*every, every[0]]):
            _say(shift.name)
            assert server.force is not None
            server.force(shift.output_tokens)
            capacities.append(_capacity(server, shift.rows, scratch / f"search-{number}", limit, seconds))
    found = estimated(measured.kinds, objective, workload.sizing, None)
    _print(found, capacities)
    return {
        "machine": machine_description(),
        "limit_ms": objective.model_latency_ms,
        "searches": [
            {"of": shift.name, "invocations_per_minute": each.invocations_per_minute, "interval": each.interval}
            for shift, each in zip([*every, every[0]], capacities, strict=True)
        ],
        "foretold": [each.model_dump(mode="json") for each in found],
        "kinds": [each.model_dump(mode="json") for each in measured.kinds],
    }


def _print(found: tuple[LengthShift, ...], capacities: list[SearchResult]) -> None:
    heads = ("throughput", "capacity", "by turn", "found", "between")
    print(f"{'payloads':<20}{'in':>7}{'out':>7}" + "".join(f"{head:>12}" for head in heads))
    for shift, each in zip((*found, found[0]), capacities, strict=True):
        times, between = _times(each, capacities[0])
        low, high = shift.scale_by_turn
        print(
            f"{shift.name:<20}{shift.mean_input_tokens:>7.1f}{shift.mean_output_tokens or 0:>7.1f}"
            f"{shift.scale_of_throughput:>12.2f}{shift.scale_within_limit:>12.2f}{f'{low:.2f}-{high:.2f}':>12}"
            f"{times:>12}{between:>12}"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _times(found: SearchResult, base: SearchResult) -> tuple[str, str]:
    """Returns how many times the base's capacity is found, and what the two searches' intervals leave open of it."""
    rate, base_rate = found.invocations_per_minute, base.invocations_per_minute
    times = f"{rate / base_rate:.2f}" if rate and base_rate else "-"
    if found.interval is None or base.interval is None:
        return times, "-"
    (low, high), (base_low, base_high) = found.interval, base.interval
    return times, f"{low / base_high:.2f}-{high / base_low:.2f}"


def _capacity(server: Server, rows: Sequence[Row], folder: Path, limit: Limit, seconds: float) -> SearchResult:
    """Searches the invocations a minute that the server bears of these rows within the limit."""
    folder.mkdir()
    archive = folder / "payloads.tar.gz"
    archive.write_bytes(payload_archive(rows))
    probe = GeneratorProbe(archive, folder, url=server.url)
    found = Search(probe=probe, limit=limit, longest_s=seconds).run()
    _say(f"{found.invocations_per_minute} invocations/min, {found.interval}: {found.reason.value}")
    return found


if __name__ == "__main__":
    sys.exit(main())
