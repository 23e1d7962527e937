"""A team's own checkpoint and a file of examples: three commands end with an answering endpoint and a recommendation.

The commands are the real ones, on a copy of the repository with an account of its own. `make test` runs them for one of
the models, with a load that is replayed, in tests/test_deployed.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import checkpoints
from tests.repository_copy import RepositoryCopy, repository_copy
from workloads import ROOT, Recommendation, load_workload

pytestmark = [pytest.mark.slow, pytest.mark.integration]

KINDS = ["roberta_classifier", "embedding", "tagger", "reranker", "t5", "bart", "marian"]
NO_VERDICT = 4
EXAMPLES = 60


def write_examples(kind: str, folder: Path) -> Path:
    """Writes a file of examples for such a model."""
    texts = checkpoints.texts(EXAMPLES)
    if kind == "reranker":
        texts = [f"{query}\t{text}" for query, text in zip(texts, checkpoints.texts(EXAMPLES, seed=1), strict=True)]
    file = folder / f"{kind}.txt"
    file.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return file


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    """A copy of the repository with an account, and what a team brings in brought/."""
    with repository_copy(tmp_path_factory.mktemp("own") / "repository") as copy:
        (copy.root / "brought").mkdir()
        yield copy


@pytest.mark.parametrize("kind", KINDS)
def test_three_commands_lead_to_an_endpoint_and_a_recommendation(copy: RepositoryCopy, kind: str) -> None:
    checkpoints.KINDS[kind](copy.root / "brought" / kind)
    examples = write_examples(kind, copy.root / "brought")
    command = ("python", "-m", "model_build", "init", kind, "--from", f"brought/{kind}", "--examples", str(examples))
    written = json.loads(copy.run(*command, "--json"))
    build, deploy, measure = (each.split() for each in written["next"])
    copy.run(*build)
    copy.run("cdk", "bootstrap", "--ci")  # it needs something that is built; again, it changes nothing
    copy.run(*deploy, "--require-approval", "never", "--ci")
    running = copy.start(*measure)
    _, said = running.communicate(timeout=900)
    if running.returncode == NO_VERDICT:
        pytest.skip(said.strip().splitlines()[-1])
    assert running.returncode == 0, said
    folder = load_workload(kind, copy.root / "workloads")
    recommendation = Recommendation.from_json(folder.recommendation_file)
    assert recommendation.recommended is not None
    assert recommendation.target == "cpu"
    row = folder.payloads()[0]
    asked = next(iter(row.values())) if len(row) == 1 else json.dumps(row)
    answered = copy.run("python", "-m", "inference_recommender", "invoke", kind, asked)
    assert answered.startswith(f"{asked} -> ")
    assert not (ROOT / "workloads" / kind).exists()
