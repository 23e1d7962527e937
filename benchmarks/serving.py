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
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.plain_triton import PlainTriton, free_port, http_triton
from workloads import ROOT, load_artifact, load_workload

MODEL, CACHED = "spellcheck", "spellcheck_cached"
OUTPUT = "CORRECTED"
BLOCK_S, CALLERS = 1.0, 4
ROWS = (1, 4, 16)
PROTOCOLS = ("json", "binary", "grpc")
HIT_RATIOS = (0.0, 0.5, 0.9)
KNOWN_REQUESTS = 64
CACHE_FLAG = "--cache-config=local,size=67108864"

Ask = Callable[[str, Sequence[str]], Awaitable[list[str]]]
"""Sends a request with texts to a model, and returns the answers."""


@dataclass(kw_only=True, slots=True)
class Way:
    """One line of the table, and what its blocks measured, a figure a round."""

    name: str
    rows: int
    ask: Ask
    model: str = MODEL
    hit_ratio: float = 0.0
    sent: list[int] = field(default_factory=lambda: [0, 0])
    """Requests that a warm cache has, and new ones."""
    counted: list[int] = field(default_factory=lambda: [0, 0])
    """The cache's hits and misses, by Triton's own count."""
    p50_ms: list[float] = field(default_factory=list)
    all_ms: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)


class Texts:
    """A workload's texts, each made new by a number, so that a cache knows none but those that it was warmed with."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._number = itertools.count(100_000)
        self.known = [self.new(random.Random(each), 1) for each in range(KNOWN_REQUESTS)]

    def new(self, draw: random.Random, count: int) -> list[str]:
        return [f"{text} {next(self._number)}" for text in draw.choices(self._texts, k=count)]

    def request(self, draw: random.Random, way: Way) -> list[str]:
        is_known = draw.random() < way.hit_ratio
        way.sent[0 if is_known else 1] += 1
        return draw.choice(self.known) if is_known else self.new(draw, way.rows)


def main() -> int:
    rounds = harness.options(__doc__, rounds=(5, "of all blocks, 13 s each")).rounds
    environment = dict(load_artifact(ROOT, MODEL, "cpu").environment)
    texts = Texts([row["text"] for row in load_workload(MODEL).payloads()])
    with _server(ROOT / "build" / MODEL / "cpu" / "repository", environment) as (triton, grpc):
        result = asyncio.run(_measure(triton, grpc, texts, rounds))
    return report(result)


def report(result: dict[str, Any]) -> int:
    print(table(result))
    same, hits = len(result["answers_differ"]), sum(not way["hits_as_sent"] for way in result["cache"][1:])
    judged = [
        Goal(cell="ways with other answers", figure=same, limit=0, at_most=True),
        Goal(cell="hit ratios whose hits are not the known requests", figure=hits, limit=0, at_most=True),
    ]
    return goals.finish("serving", ["tritonclient", "grpcio", "aiohttp"], {"workload": MODEL, **result}, judged)


@contextmanager
def _server(repository: Path, environment: dict[str, str]) -> Iterator[tuple[PlainTriton, str]]:
    """Starts one Triton on a copy of `repository` with a second model that is cached; yields its gRPC address too."""
    port = free_port()
    flags = [CACHE_FLAG, f"--load-model={CACHED}", "--grpc-address=127.0.0.1", f"--grpc-port={port}"]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(repository, copy)
        shutil.copytree(copy / MODEL, copy / CACHED)
        file = copy / CACHED / "config.pbtxt"
        config = file.read_text("utf-8").replace(f'name: "{MODEL}"', f'name: "{CACHED}"', 1)
        file.write_text(f"{config}\nresponse_cache {{ enable: true }}\n", "utf-8")
        with http_triton(copy, MODEL, environment, *flags) as triton:
            yield triton, f"127.0.0.1:{port}"


async def _measure(triton: PlainTriton, grpc: str, texts: Texts, rounds: int) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_client.InferenceServerClient(triton.url.removeprefix("http://")))
        rpc = await stack.enter_async_context(grpc_client.InferenceServerClient(grpc))
        asks: dict[str, Ask] = {
            "json": lambda model, rows: _http(http, model, rows, binary=False),
            "binary": lambda model, rows: _http(http, model, rows, binary=True),
            "grpc": lambda model, rows: _grpc(rpc, model, rows),
        }
        differ = await _differences(asks, texts)
        protocols = [Way(name=name, rows=count, ask=asks[name]) for count in ROWS for name in PROTOCOLS]
        cache = [Way(name="off", rows=1, ask=asks["json"])]
        for ratio in HIT_RATIOS:
            cache.append(Way(name=f"{ratio:g}", rows=1, ask=asks["json"], model=CACHED, hit_ratio=ratio))
        for turn in range(rounds):
            print(f"… round {turn + 1} of {rounds}", file=sys.stderr)
            for way in [*protocols, *cache] if turn % 2 else [*reversed(cache), *reversed(protocols)]:
                before = await _cache_counts(http, way.model)
                await _block(way, texts, turn)
                after = await _cache_counts(http, way.model)
                way.counted = [had + b - a for had, a, b in zip(way.counted, before, after, strict=True)]
    return {
        "rounds": rounds,
        "answers_differ": differ,
        "protocols": [_figures(way, protocols[len(PROTOCOLS) * ROWS.index(way.rows)]) for way in protocols],
        "cache": [_figures(way, cache[0]) for way in cache],
    }


async def _http(client: Any, model: str, rows: Sequence[str], *, binary: bool) -> list[str]:
    # Without a list of outputs this client asks for all of them as bytes.
    outputs = [http_client.InferRequestedOutput(OUTPUT, binary_data=binary)]
    return _answers(await client.infer(model, _inputs(http_client, rows, binary_data=binary), outputs=outputs))


async def _grpc(client: Any, model: str, rows: Sequence[str]) -> list[str]:
    return _answers(await client.infer(model, _inputs(grpc_client, rows)))


def _inputs(library: Any, rows: Sequence[str], **form: bool) -> list[Any]:
    values = np.array([[row.encode()] for row in rows], dtype=np.object_)
    tensor = library.InferInput("TEXT", values.shape, "BYTES")
    tensor.set_data_from_numpy(values, **form)
    return [tensor]


def _answers(answer: Any) -> list[str]:
    """Returns the texts: HTTP's JSON has str where the others have bytes."""
    texts = answer.as_numpy(OUTPUT).ravel().tolist()
    return [text.decode() if isinstance(text, bytes) else text for text in texts]


async def _differences(asks: dict[str, Ask], texts: Texts) -> list[str]:
    """Warms every way and returns those whose answers are not the same as one row of JSON's after another."""
    expected = [await asks["json"](MODEL, request) for request in texts.known]
    differ = set()
    for name, ask in asks.items():
        for model in (MODEL, CACHED, CACHED):
            if [await ask(model, request) for request in texts.known] != expected:
                differ.add(f"{name} {model}")
        for count in ROWS:
            together = await ask(MODEL, [text for (text,) in texts.known[:count]])
            if together != [answer for (answer,) in expected[:count]]:
                differ.add(f"{name} {count} rows")
    return sorted(differ)


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
            answered = time.perf_counter()
            milliseconds.append((answered - sent) * 1000)
            if answered > start + BLOCK_S / 2:
                return

    await asyncio.gather(*(call() for _ in range(callers)))
    return milliseconds, time.perf_counter() - start


def _figures(way: Way, beside: Way) -> dict[str, Any]:
    is_cached = way.model == CACHED
    return {
        "way": way.name,
        "rows": way.rows,
        "p50_ms": round(statistics.median(way.p50_ms), 3),
        "p99_ms": round(statistics.quantiles(way.all_ms, n=100)[98], 3),
        "requests_per_s": round(statistics.median(way.per_s), 1),
        "p50_ratio": _ratio(way.p50_ms, beside.p50_ms),
        "requests_ratio": _ratio(way.per_s, beside.per_s),
        "hit_ratio_counted": round(way.counted[0] / sum(way.counted), 3) if is_cached else None,
        "hits_as_sent": way.counted == way.sent if is_cached else None,
    }


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return round(statistics.median(one / other for one, other in zip(ours, theirs, strict=True)), 3)


def table(result: dict[str, Any]) -> str:
    lines = []
    for title, kind in (("rows  protocol", "protocols"), ("rows  cache   ", "cache")):
        lines.append(f"{title}  p50 ms  p99 ms  requests/s  p50 x  req x  hits")
        for way in result[kind]:
            hits = f"{way['hit_ratio_counted']:.2f}" if way["hit_ratio_counted"] is not None else "-"
            lines.append(
                f"{way['rows']:>4}  {way['way']:<8}{way['p50_ms']:>8.2f}{way['p99_ms']:>8.2f}"
                f"{way['requests_per_s']:>12,.0f}{way['p50_ratio']:>7.2f}{way['requests_ratio']:>7.2f}{hits:>6}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
