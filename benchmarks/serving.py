"""Ways to call Triton: JSON, binary HTTP and gRPC at several rows per request, and the response cache by hit ratio.

  python -m model_build build spellcheck --target cpu
  python benchmarks/serving.py

One Triton answers blocks of requests in changing order with the same texts, from tritonclient's clients for asyncio.

  off, 0.5         the model without a cache, and with one and half of the requests among 64 known ones
  p50 ms, p99 ms   with one caller, from building the tensors to reading the answer
  requests/s       closed loop with `CALLERS`
  p50 x, req x     over `json` of the same rows, or over `off`: medians over rounds
  hits             the hit ratio by the server's statistics

Exits with 1 if two ways give other answers, or if the cache's hits are not those expected.
"""

import asyncio
import itertools
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_client
import tritonclient.http.aio as http_client

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import harness
from benchmarks.plain_triton import PlainTriton, free_port, http_triton
from workloads import ROOT, Row, load_artifact, load_workload

WORKLOAD = "spellcheck"
BLOCK_S, CALLERS = 1.0, 4
ROWS = (1, 4, 16)
PROTOCOLS = ("json", "binary", "grpc")
HIT_RATIOS = (0.0, 0.5, 0.9)
KNOWN_REQUESTS = 64
CACHE_FLAG = "--cache-config=local,size=67108864"

Ask = Callable[[str, Sequence[Row]], Awaitable[dict[str, list[Any]]]]


@dataclass(kw_only=True, slots=True)
class Way:
    """One line of the table, and what its blocks measured, a figure a round."""

    name: str
    rows: int
    model: str
    ask: Ask
    hit_ratio: float | None = None
    known: int = 0
    """Requests sent that a cache holds."""
    new: int = 0
    p50_ms: list[float] = field(default_factory=list)
    all_ms: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)


class Texts:
    """A workload's rows, each made new by a number, so that a cache knows none but those that it was warmed with."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._number = itertools.count(100_000)
        self.known = [self.new(random.Random(each), 1) for each in range(KNOWN_REQUESTS)]

    def new(self, draw: random.Random, count: int) -> list[Row]:
        return [
            {name: f"{text} {next(self._number)}" for name, text in row.items()}
            for row in draw.choices(self._rows, k=count)
        ]

    def request(self, draw: random.Random, way: Way) -> list[Row]:
        if way.hit_ratio is not None and draw.random() < way.hit_ratio:
            way.known += 1
            return draw.choice(self.known)
        way.new += 1
        return self.new(draw, way.rows)


def main() -> int:
    rounds = harness.options(__doc__, rounds=(5, "of all blocks, 13 s each")).rounds
    artifact = load_artifact(ROOT, WORKLOAD, "cpu")
    rows = load_workload(WORKLOAD).payloads()
    repository = ROOT / "build" / WORKLOAD / "cpu" / "repository"
    with _server(repository, artifact.default_model, dict(artifact.environment)) as (triton, grpc):
        found = asyncio.run(_measure(triton, grpc, artifact.default_model, rows, rounds))
    print(_table(found), end="")
    same, hits = not found["answers_differ"], all(each["hits_as_sent"] for each in found["cache"][1:])
    judged = {"all ways give the same answers": same, "the cache hits are the known requests": hits}
    goals = [{"goal": goal, "got": met, "met": met} for goal, met in judged.items()]
    print(*harness.goal_lines(goals), sep="\n")
    document = {"workload": WORKLOAD, **found, "goals": goals}
    return harness.finish("serving", ["tritonclient", "grpcio", "aiohttp"], document, goals)


@contextmanager
def _server(repository: Path, model: str, environment: dict[str, str]) -> Iterator[tuple[PlainTriton, str]]:
    """Starts one Triton on a copy of `repository` with a second `model` that is cached; yields its gRPC address too."""
    grpc = f"127.0.0.1:{free_port()}"
    address, port = grpc.split(":")
    flags = [CACHE_FLAG, f"--load-model={_cached(model)}", f"--grpc-address={address}", f"--grpc-port={port}"]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(repository, copy)
        shutil.copytree(copy / model, copy / _cached(model))
        file = copy / _cached(model) / "config.pbtxt"
        config = file.read_text("utf-8").replace(f'name: "{model}"', f'name: "{_cached(model)}"', 1)
        file.write_text(f"{config}\nresponse_cache {{ enable: true }}\n", "utf-8")
        with http_triton(copy, model, environment, *flags) as triton:
            yield triton, grpc


def _cached(model: str) -> str:
    return f"{model}_cached"


async def _measure(triton: PlainTriton, grpc: str, model: str, rows: Sequence[Row], rounds: int) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_client.InferenceServerClient(triton.url.removeprefix("http://")))
        rpc = await stack.enter_async_context(grpc_client.InferenceServerClient(grpc))
        outputs = [each["name"] for each in (await http.get_model_metadata(model))["outputs"]]
        asks: dict[str, Ask] = {
            "json": lambda model, rows: _http(http, model, rows, outputs, binary=False),
            "binary": lambda model, rows: _http(http, model, rows, outputs, binary=True),
            "grpc": lambda model, rows: _grpc(rpc, model, rows),
        }
        texts = Texts(rows)
        differ = await _differences(asks, model, texts)
        protocols = [Way(name=name, rows=count, model=model, ask=asks[name]) for count in ROWS for name in PROTOCOLS]
        cache = [Way(name="off", rows=1, model=model, ask=asks["json"], hit_ratio=0.0)]
        for ratio in HIT_RATIOS:
            cache.append(Way(name=f"{ratio:g}", rows=1, model=_cached(model), ask=asks["json"], hit_ratio=ratio))
        hits: dict[str, list[int]] = {way.name: [0, 0] for way in cache[1:]}
        for turn in range(rounds):
            print(f"… round {turn + 1} of {rounds}", file=sys.stderr)
            for way in [*protocols, *cache] if turn % 2 else [*reversed(cache), *reversed(protocols)]:
                before = await _cache_counts(http, way.model)
                await _block(way, texts, turn)
                if way.name in hits:
                    after = await _cache_counts(http, way.model)
                    hits[way.name] = [had + b - a for had, a, b in zip(hits[way.name], before, after, strict=True)]
    return {
        "rounds": rounds,
        "block_s": BLOCK_S,
        "callers": CALLERS,
        "answers_differ": differ,
        "protocols": [_figures(way, protocols[len(PROTOCOLS) * ROWS.index(way.rows)], None) for way in protocols],
        "cache": [_figures(way, cache[0], hits.get(way.name)) for way in cache],
    }


async def _http(
    client: Any, model: str, rows: Sequence[Row], outputs: Sequence[str], *, binary: bool
) -> dict[str, list[Any]]:
    # Without a list of outputs this client asks for all of them as bytes.
    asked = [http_client.InferRequestedOutput(name, binary_data=binary) for name in outputs]
    inputs = _inputs(http_client, rows, binary_data=binary)
    return _outputs(await client.infer(model, inputs, outputs=asked), outputs)


async def _grpc(client: Any, model: str, rows: Sequence[Row]) -> dict[str, list[Any]]:
    answer = await client.infer(model, _inputs(grpc_client, rows))
    return _outputs(answer, [each.name for each in answer.get_response().outputs])


def _inputs(library: Any, rows: Sequence[Row], **form: bool) -> list[Any]:
    """Returns a tensor of text for each field, [rows, 1]."""
    inputs = []
    for name in rows[0]:
        values = np.array([[row[name].encode()] for row in rows], dtype=np.object_)
        inputs.append(library.InferInput(name.upper(), values.shape, "BYTES"))
        inputs[-1].set_data_from_numpy(values, **form)
    return inputs


def _outputs(answer: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    """Returns each output's values, text as text: HTTP's JSON has str where the others have bytes."""
    return {
        name: [each.decode() if isinstance(each, bytes) else each for each in answer.as_numpy(name).ravel().tolist()]
        for name in sorted(names)
    }


async def _differences(asks: dict[str, Ask], model: str, texts: Texts) -> list[str]:
    """Warms every way and returns those whose answers are not the same as one row of JSON's after another."""
    wanted = [await asks["json"](model, request) for request in texts.known]
    differ = set()
    for name, ask in asks.items():
        for served in (model, _cached(model), _cached(model)):
            got = [await ask(served, request) for request in texts.known]
            if not all(map(_same, got, wanted)):
                differ.add(f"{name} {served}")
        for count in ROWS:
            together = await ask(model, [request[0] for request in texts.known[:count]])
            single = {key: [each[key][0] for each in wanted[:count]] for key in wanted[0]}
            if not _same(together, single):
                differ.add(f"{name} {count} rows")
    return sorted(differ)


def _same(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> bool:
    """Numbers may differ in their last digits, because a batch is summed in another order."""
    return one.keys() == other.keys() and all(
        np.allclose(one[key], other[key], atol=1e-4) if isinstance(one[key][0], float) else one[key] == other[key]
        for key in one
    )


async def _cache_counts(client: Any, model: str) -> list[int]:
    """Returns the requests that the cache answered and that it did not, by Triton's own count."""
    stats = (await client.get_inference_statistics(model))["model_stats"][0]["inference_stats"]
    return [stats["cache_hit"]["count"], stats["cache_miss"]["count"]]


async def _block(way: Way, texts: Texts, turn: int) -> None:
    """Sends one at a time, then `CALLERS` at once, for half of the block's seconds each."""
    draw = random.Random(turn)  # the same texts in all blocks of a round, but for their numbers
    alone, _ = await _load(way, texts, draw, 1)
    together, seconds = await _load(way, texts, draw, CALLERS)
    way.p50_ms.append(statistics.median(alone))
    way.all_ms += alone
    way.per_s.append(len(together) / seconds)


async def _load(way: Way, texts: Texts, draw: random.Random, callers: int) -> tuple[list[float], float]:
    """Returns the milliseconds of each request, at least one of each caller, and how long all of it took."""
    milliseconds: list[float] = []
    start = time.perf_counter()

    async def call() -> None:
        while True:
            request = texts.request(draw, way)
            sent = time.perf_counter()
            await way.ask(way.model, request)
            got = time.perf_counter()
            milliseconds.append((got - sent) * 1000)
            if got > start + BLOCK_S / 2:
                return

    await asyncio.gather(*(call() for _ in range(callers)))
    return milliseconds, time.perf_counter() - start


def _figures(way: Way, beside: Way, hits: Sequence[int] | None) -> dict[str, Any]:
    return {
        "way": way.name,
        "rows": way.rows,
        "p50_ms": round(statistics.median(way.p50_ms), 3),
        "p99_ms": round(statistics.quantiles(way.all_ms, n=100)[98], 3),
        "requests_per_s": round(statistics.median(way.per_s), 1),
        "p50_ratio": _ratio(way.p50_ms, beside.p50_ms),
        "requests_ratio": _ratio(way.per_s, beside.per_s),
        "requests": len(way.all_ms),
        "hit_ratio_counted": round(hits[0] / sum(hits), 3) if hits is not None else None,
        "hits_as_sent": list(hits) == [way.known, way.new] if hits is not None else None,
    }


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return round(statistics.median(one / other for one, other in zip(ours, theirs, strict=True)), 3)


def _table(found: dict[str, Any]) -> str:
    lines = []
    for title, kind in (("rows  protocol", "protocols"), ("rows  cache   ", "cache")):
        lines.append(f"{title}  p50 ms  p99 ms  requests/s  p50 x  req x  hits")
        for each in found[kind]:
            hits = f"{each['hit_ratio_counted']:.2f}" if each["hit_ratio_counted"] is not None else "-"
            lines.append(
                f"{each['rows']:>4}  {each['way']:<8}{each['p50_ms']:>8.2f}{each['p99_ms']:>8.2f}"
                f"{each['requests_per_s']:>12,.0f}{each['p50_ratio']:>7.2f}{each['requests_ratio']:>7.2f}{hits:>6}"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
