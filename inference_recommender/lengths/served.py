"""The server that is asked: a Triton of this machine, whose answers can be made to have a stated length, or any other.

A decoder stops at the first end-of-sequence token or at max_output_tokens. Both are parameters in config.pbtxt, and
Triton loads a model again with others: with an end that no token is, and a limit of k, every answer has k tokens, by
the very loop that serves. Benchmarks of large language models do the same (`ignore_eos`). Where beams are searched or a
token is forced or forbidden, the end takes part in the choice of the others: such answers are left as they come.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference_recommender.client import SageMakerEndpoint
from inference_recommender.lengths.asking import TIMEOUT_S, Connection, Post, to_endpoint
from inference_recommender.load_generator.plan import SageMakerEndpoint as NamedEndpoint
from inference_recommender.load_test.served import MeasuredOn
from inference_recommender.load_test.target import Target
from inference_recommender.tune.race import Refused
from inference_recommender.tune.space import own
from inference_recommender.tune.triton import Built, TunedTriton
from workloads import ROOT, NeuronTarget, Unavailable, UsageError, WorkloadFolder, artifact_file, load_artifact

NO_TOKEN = "-1"
LIMIT, END, GENERATION = "max_output_tokens", "eos_token_ids", "generation"
FREE = frozenset({"settable"})
"""Keys of the generation that change no answer of a request without parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A server to be asked, by `post` or by a load at `url` or `endpoint`."""

    name: str
    post: Post
    url: str | None
    endpoint: NamedEndpoint | None
    archive_sha256: str | None
    """The hash of the archive that serves; None where nothing tells."""
    measured_on: MeasuredOn
    force: Callable[[int | None], None] | None = None
    """Makes every answer so many tokens long from now on, or as the model gives it for None; None where the server
    takes no length."""


@contextmanager
def built_server(folder: WorkloadFolder, target: str, kept: Path, say: Callable[[str], None]) -> Iterator[Server]:
    """Yields a Triton of this machine with a target's build. Raises `UsageError` or `Unavailable`."""
    workload, built = folder.workload, folder.variant(target).target
    if isinstance(folder.target(built), NeuronTarget):
        raise UsageError(f"--target: {target} is for Inferentia, and a Triton of this machine serves. Give --endpoint.")
    artifact = load_artifact(folder.builds(ROOT), workload.name, target, folder.published_name)
    repository = artifact_file(folder.builds(ROOT), workload.name, target).with_name("repository")
    configuration = own(workload, built)
    there = {built: Built(repository=repository, environment=artifact.environment)}
    with TunedTriton(workload.name, there, kept, say) as triton:

        def force(output_tokens: int | None) -> None:
            limited = None if output_tokens is None else {LIMIT: str(output_tokens), END: NO_TOKEN}
            triton.load(configuration, limited)

        try:
            triton.load(configuration)
            with Connection(triton.url) as connection:
                yield Server(
                    name=f"a Triton of this machine with {target}",
                    post=connection,
                    url=triton.url,
                    endpoint=None,
                    archive_sha256=artifact.archive_sha256,
                    measured_on="local",
                    force=force if takes_a_length(triton.told(workload.name)) else None,
                )
        except Refused as refused:
            raise Unavailable(f"{refused} Its log is in {kept}.") from refused


def takes_a_length(config: Mapping[str, Any]) -> bool:
    """Tells of a model's configuration, as Triton tells it, whether its answers can be made to have a stated length."""
    parameters = config.get("parameters", {})
    if not {LIMIT, END} <= parameters.keys():
        return False
    generation = json.loads(parameters.get(GENERATION, {}).get("string_value", "{}"))
    return set(generation) <= FREE


@contextmanager
def other_server(target: Target) -> Iterator[Server]:
    """Yields the server at a URL, or an endpoint by its name."""

    def server(post: Post) -> Server:
        return Server(
            name=target.name,
            post=post,
            url=target.url,
            endpoint=target.endpoint,
            archive_sha256=target.archive_sha256,
            measured_on=target.measured_on,
        )

    if target.url is not None:
        with Connection(target.url) as connection:
            yield server(connection)
        return
    with SageMakerEndpoint(target.name, timeout_s=TIMEOUT_S) as endpoint:
        yield server(to_endpoint(endpoint))
