"""Ways to call Triton: protocols at several rows per request, the response cache by hit ratio, and ways to batch.

  python -m model_build build spellcheck --target cpu           and text_classification
  python benchmarks/serving.py

One Triton answers turns in changing order with the same texts, from tritonclient's clients for asyncio. A turn has a
number of callers in a closed loop. The tables have the time for each request: with one caller the median latency, with
more the turn's seconds over its requests. CPU is Triton's.

  off, 0.5           the model without a cache, and with one and half of the requests among 64 known ones
  by length, padded  batches in groups of similar lengths, and padded to their longest row. Lengths are log-normal with
                     40 tokens at P50 and 400 at P99, and 64 callers send a row each
  guided, greedy     spellcheck with its own settings, and one copy that decodes token by token in padded batches

Goals: all protocols give the same answers, the cache's hits are the known requests, groups of similar lengths are 1.5
times as fast, and guided decoding with all cores answers twice the requests.
"""

import asyncio
import itertools
import json
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_client
import tritonclient.http.aio as http_client

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.harness import Checked, Comparison, Turn
from benchmarks.plain_triton import PlainTriton, http_triton, processor_s
from tests.builders import free_port
from workloads import ROOT, load_artifact, load_workload

MODEL, CACHED, OUTPUT = "spellcheck", "spellcheck_cached", "CORRECTED"
LONG, PADDED, GREEDY = "text_classification", "text_classification_padded", "spellcheck_greedy"
TURN_S = 0.5
ROWS, CALLERS, MIXED_CALLERS, GUIDED_CALLERS = (1, 4, 16), (1, 4), 64, 16
HIT_RATIOS = (0.0, 0.5, 0.9)
KNOWN_REQUESTS = 64
CACHE_FLAG = "--cache-config=local,size=67108864"
P50_TOKENS, P99_TOKENS, MOST_TOKENS, TEXTS = 40, 400, 510, 2000
BY_LENGTH_GOAL, GUIDED_GOAL = 1.5, 2.0

Ask = Callable[[str, Sequence[str]], Awaitable[list[str]]]
"""Sends a request with texts to a model, and returns the answers."""


@dataclass(kw_only=True, slots=True)
class Way:
    """A way to call Triton. `request` draws the texts of a request."""

    name: str
    ask: Ask
    request: Callable[[random.Random], Sequence[str]]
    model: str = MODEL
    counts: list[int] = field(default_factory=lambda: [0, 0])
    """The cache's hits and misses, by Triton's own count."""


class Texts:
    """A workload's texts, each made new by a number, so that a cache knows none but those that it was warmed with."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._number = itertools.count(100_000)
        self.known = [self.new(random.Random(each), 1) for each in range(KNOWN_REQUESTS)]
        self.sent = {ratio: [0, 0] for ratio in HIT_RATIOS}
        """Requests that a warm cache has, and new ones, by hit ratio."""

    def new(self, draw: random.Random, count: int) -> list[str]:
        return [f"{text} {next(self._number)}" for text in draw.choices(self._texts, k=count)]

    def request(self, draw: random.Random, ratio: float) -> list[str]:
        is_known = draw.random() < ratio
        self.sent[ratio][0 if is_known else 1] += 1
        return draw.choice(self.known) if is_known else self.new(draw, 1)


def main() -> int:
    rounds = harness.options(__doc__, rounds=(5, "turns of each way")).rounds
    rows = [str(row["text"]) for row in load_workload(MODEL).payloads()]
    with _server(MODEL, CACHED, _cache, CACHE_FLAG) as (triton, grpc):
        compared, judged = asyncio.run(_measure(triton, grpc, Texts(rows), rounds))
    for names, change, asked, callers, goal in (
        ({"greedy": GREEDY, "guided": MODEL}, _decode_greedily, rows, GUIDED_CALLERS, GUIDED_GOAL),
        ({"padded": PADDED, "by length": LONG}, _pad, mixed_texts(), MIXED_CALLERS, BY_LENGTH_GOAL),
    ):
        before, now = names
        compared.append(asyncio.run(_compare_with_copy(names, change, asked, callers, rounds)))
        judged += harness.pair_goals(compared[-1], [(now, before, goal)])
    document = {each.title: each.document() for each in compared}
    return goals.finish("serving", ["tritonclient", "grpcio", "aiohttp"], document, judged)


@contextmanager
def _server(model: str, other: str, change: Callable[[Path], None], *flags: str) -> Iterator[tuple[PlainTriton, str]]:
    """Starts one Triton with a model and a changed copy of it; yields its gRPC address too."""
    port = free_port()
    flags = (*flags, f"--load-model={other}", "--grpc-address=127.0.0.1", f"--grpc-port={port}")
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        shutil.copytree(ROOT / "build" / model / "cpu" / "repository", repository)
        for part in list(repository.glob(f"{model}*")):
            _batch_dynamically(part / "config.pbtxt")
            name = part.name.replace(model, other, 1)
            shutil.copytree(part, repository / name)
            config = repository / name / "config.pbtxt"
            config.write_text(config.read_text("utf-8").replace(f'"{model}', f'"{other}'), "utf-8")
            change(repository / name)
        with http_triton(repository, model, dict(load_artifact(ROOT, model, "cpu").environment), *flags) as triton:
            yield triton, f"127.0.0.1:{port}"


def _batch_dynamically(config: Path) -> None:
    """Turns dynamic batching on, which the published experiment of `LONG` has off."""
    text = config.read_text("utf-8")
    if 'backend: "python"' in text and "dynamic_batching" not in text:
        config.write_text(f"{text}\ndynamic_batching {{ }}\n", "utf-8")


def _cache(folder: Path) -> None:
    with (folder / "config.pbtxt").open("a", encoding="utf-8") as config:
        config.write("\nresponse_cache { enable: true }\n")


def _pad(folder: Path) -> None:
    """Makes a launch so expensive that rows of all lengths share one."""
    for file in folder.rglob("settings.json"):
        settings = json.loads(file.read_text("utf-8"))
        if "launch_tokens" in settings:
            file.write_text(json.dumps({**settings, "launch_tokens": 10**9}), "utf-8")


def _decode_greedily(folder: Path) -> None:
    """Makes the model one copy, without drafts and with padded batches."""
    config = folder / "config.pbtxt"
    text = config.read_text("utf-8")
    for key, pattern, value in (
        ("count", r"(count: )\d+", "1"),
        ("launch_tokens", r'(key: "launch_tokens" value \{ string_value: )"\d+"', f'"{10**9}"'),
        ("guided", r'(\\"guided\\": )\\"input\\"', r'\\"off\\"'),
    ):
        text, changed = re.subn(pattern, rf"\g<1>{value}", text)
        if not changed:
            raise SystemExit(f"{config} has no {key} to change.")
    config.write_text(text, "utf-8")


async def _measure(triton: PlainTriton, grpc: str, texts: Texts, rounds: int) -> tuple[list[Comparison], list[Goal]]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_client.InferenceServerClient(triton.url.removeprefix("http://")))
        rpc = await stack.enter_async_context(grpc_client.InferenceServerClient(grpc))
        asks: dict[str, Ask] = {
            "json": lambda model, rows: _http(http, model, rows, binary=False),
            "binary": lambda model, rows: _http(http, model, rows, binary=True),
            "grpc": lambda model, rows: _grpc(rpc, model, rows),
        }
        differ = await _differences(asks, texts)
        compared = []
        for rows, callers in itertools.product(ROWS, CALLERS):
            ways = [Way(name=name, ask=ask, request=partial(texts.new, count=rows)) for name, ask in asks.items()]
            compared.append(await compare(f"{rows} rows, {callers} callers", ways, callers, rounds, triton.pid))
        cached = [
            Way(name=f"{ratio:g}", ask=asks["json"], model=CACHED, request=partial(texts.request, ratio=ratio))
            for ratio in HIT_RATIOS
        ]
        off = Way(name="off", ask=asks["json"], request=partial(texts.new, count=1))
        for callers in CALLERS:
            compared.append(
                await compare(f"cache, {callers} callers", [off, *cached], callers, rounds, triton.pid, http)
            )
    wrong = sum(way.counts != sent for way, sent in zip(cached, texts.sent.values(), strict=True))
    return compared, [
        Goal(cell="ways with other answers", figure=len(differ), limit=0, at_most=True, note=", ".join(differ)),
        Goal(cell="hit ratios whose hits are not the known requests", figure=wrong, limit=0, at_most=True),
    ]


async def _compare_with_copy(
    names: Mapping[str, str], change: Callable[[Path], None], rows: Sequence[str], callers: int, rounds: int
) -> Comparison:
    """Compares a changed copy of a model with the model. `names` has both in this order, by the name of the way."""
    copy, model = names.values()
    with _server(model, copy, change) as (triton, _):
        address = triton.url.removeprefix("http://")
        async with http_client.InferenceServerClient(address, conn_limit=callers, conn_timeout=600) as http:

            async def ask(model: str, rows: Sequence[str]) -> list[str]:
                await http.infer(model, _inputs(http_client, rows, binary_data=True))
                return []

            ways = [
                Way(name=name, ask=ask, model=model, request=lambda draw: draw.choices(rows))
                for name, model in names.items()
            ]
            title = f"{' or '.join(names)}, {callers} callers"
            return await compare(title, ways, callers, rounds, triton.pid)


def mixed_texts() -> list[str]:
    """Returns texts whose lengths in tokens are log-normal with `P50_TOKENS` and `P99_TOKENS`."""
    from tokenizers import Tokenizer

    folder = load_workload(LONG)
    tokenizer = Tokenizer.from_file(str(folder.path / "checkpoint" / "tokenizer.json"))
    tokenizer.no_truncation()
    text = " ".join(str(row["text"]) for row in folder.payloads())
    encoding = tokenizer.encode(text, add_special_tokens=False)
    spread = np.log(P99_TOKENS / P50_TOKENS) / statistics.NormalDist().inv_cdf(0.99)
    random_ = np.random.default_rng(0)
    lengths = np.clip(np.exp(random_.normal(np.log(P50_TOKENS), spread, TEXTS)), 3, MOST_TOKENS).astype(int) - 2
    starts = random_.integers(0, len(encoding.ids) - MOST_TOKENS, TEXTS)
    spans = [encoding.offsets[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    return [text[span[0][0] : span[-1][1]] for span in spans]


async def compare(title: str, ways: Sequence[Way], callers: int, rounds: int, pid: int, http: Any = None) -> Comparison:
    """Returns the turns of all ways, after a round that does not count. With a client, it reads the cache's counts."""
    turns: dict[str, list[Turn]] = {way.name: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways if number % 2 else reversed(ways):
            before = await _cache_counts(http, way.model) if http else [0, 0]
            turn = await _turn(way, callers, pid, random.Random(number))
            after = await _cache_counts(http, way.model) if http else [0, 0]
            way.counts = [had + b - a for had, a, b in zip(way.counts, before, after, strict=True)]
            if number:
                turns[way.name].append(turn)
    hits = {way.name: Checked(f"hits {way.counts[0] / sum(way.counts):.2f}") for way in ways if sum(way.counts)}
    compared = Comparison(title=title, turns=turns, answers=hits)
    print(compared.table(), end="\n\n", flush=True)
    return compared


async def _turn(way: Way, callers: int, pid: int, draw: random.Random) -> Turn:
    milliseconds: list[float] = []
    used, start = processor_s(pid), time.perf_counter()

    async def call() -> None:
        while True:
            request = way.request(draw)
            sent = time.perf_counter()
            await way.ask(way.model, request)
            answered = time.perf_counter()
            milliseconds.append((answered - sent) * 1000)
            if answered > start + TURN_S:
                return

    await asyncio.gather(*(call() for _ in range(callers)))
    mean_ms = (time.perf_counter() - start) * 1000 / len(milliseconds)
    cpu_ms = (processor_s(pid) - used) * 1000 / len(milliseconds)
    median_ms = statistics.median(milliseconds) if callers == 1 else mean_ms
    return Turn(median_ms, cpu_ms, mean_ms, float(np.percentile(milliseconds, 99)))


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


if __name__ == "__main__":
    sys.exit(main())
