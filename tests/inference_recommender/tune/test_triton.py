"""`tune`: its space, its refusals, and a Triton that serves a configuration like a build of it."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import tomllib

from inference_recommender.capacity.statistics import Limit
from inference_recommender.payloads import payload_archive
from inference_recommender.tune.folder import TuneFolder
from inference_recommender.tune.race import ConfigurationRefused, EndReason, Race
from inference_recommender.tune.space import ServingConfiguration, own
from inference_recommender.tune.triton import TunedTriton, overridden
from local_aws.process.triton import TritonServer
from model_build.execute import build
from model_build.plan import plan
from tests.builders import known
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.tune.builders import a_plan
from tests.model_build.miniatures.tiny_bert import make_workload
from tests.quick_triton import read_json
from workloads import ModelArtifact, Serving, WorkloadFolder, load_workload

LIMIT = Limit(percentile=90.0, latency_ms=200.0)
TOLD = {
    "name": "spellcheck",
    "max_batch_size": 16,
    "instance_group": [{"name": "spellcheck_0", "kind": "KIND_CPU", "count": 1, "gpus": []}],
    "dynamic_batching": {"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 0},
    "parameters": {"threads": {"string_value": "1"}, "pad_token_id": {"string_value": "0"}},
    "model_warmup": [{"name": "batch of 1", "batch_size": 1, "inputs": {}}, {"name": "batch of 16", "batch_size": 16}],
}


def test_a_configuration_changes_the_one_of_triton() -> None:
    serving = Serving(max_batch_size=8, preferred_batch_sizes=(4,), max_queue_delay_ms=1.5, model_instances=2)
    changed = overridden(TOLD, serving, threads=2)
    assert changed == {
        **TOLD,
        "max_batch_size": 8,
        "instance_group": [{"name": "spellcheck_0", "kind": "KIND_CPU", "count": 2, "gpus": []}],
        "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 1500},
        "parameters": {"threads": {"string_value": "2"}, "pad_token_id": {"string_value": "0"}},
        "model_warmup": [{"name": f"batch of {size}", "batch_size": size, "inputs": {}} for size in (1, 4, 8)],
    }
    assert "dynamic_batching" not in overridden(TOLD, Serving(dynamic_batching=False), threads=None)
    assert TOLD["max_batch_size"] == 16


def test_an_ensemble_keeps_its_steps() -> None:
    told = {"name": "tiny", "max_batch_size": 16, "ensemble_scheduling": {"step": []}}
    assert overridden(told, Serving(max_batch_size=4, model_instances=2), threads=2) == {**told, "max_batch_size": 4}


VARIANT = """
[variants.faster]
target = "cpu"
serving = { max_batch_size = 8, preferred_batch_sizes = [2, 4], max_queue_delay_ms = 1.5, model_instances = 2 }
"""


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> WorkloadFolder:
    """A tiny classifier, an ensemble of three steps, with a variant of its target "cpu"."""
    folder = make_workload(tmp_path_factory.mktemp("tune") / "workloads", "text-classification")
    text = folder.file.read_text("utf-8")
    if "faster" not in tomllib.loads(text).get("variants", {}):
        folder.file.write_text(text + VARIANT, "utf-8")
    return load_workload("tiny", folder.path.parent)


def _build(workload: WorkloadFolder, name: str) -> tuple[ModelArtifact, Path]:
    planned = plan(workload, name, workload.path.parent.parent)
    return build(planned), planned.repository


@pytest.fixture
def triton(workload: WorkloadFolder, tmp_path: Path) -> Iterator[TunedTriton]:
    artifact, repository = _build(workload, "cpu")
    folder = TuneFolder(tmp_path / "run")
    folder.begin(a_plan([], workload="tiny"), workload.workload, payload_archive(workload.payloads()))
    builds = {"cpu": (repository, artifact.environment)}
    with closing(TunedTriton("tiny", builds, folder, LIMIT)) as triton:
        yield triton


@pytest.mark.slow
@pytest.mark.integration
def test_a_loaded_configuration_equals_a_build_of_the_variant(
    workload: WorkloadFolder, triton: TunedTriton, tmp_path: Path
) -> None:
    artifact, repository = _build(workload, "faster")
    with TritonServer.start(
        repository, default_model="tiny", environment=artifact.environment, log_file=tmp_path / "built.log"
    ) as server:
        models = [each.parent.name for each in repository.glob("*/config.pbtxt")]
        built = {model: read_json(server, f"/v2/models/{model}/config") for model in models}
    serving = workload.workload.variants["faster"].serving
    triton.load(ServingConfiguration(target="cpu", threads=1, serving=serving))
    assert {model: triton.config(model) for model in models} == built
    assert len(built) == 4


@pytest.mark.slow
@pytest.mark.integration
def test_threads_change_in_the_copy_alone_and_a_rejected_configuration_does_not_stop_the_next(
    workload: WorkloadFolder, triton: TunedTriton
) -> None:
    def threads(repository: Path) -> set[int]:
        return {json.loads(each.read_text("utf-8"))["threads"] for each in repository.glob("*/1/settings.json")}

    serving = own(workload.workload, "cpu").serving
    impossible = Serving.model_construct(**{**dict(serving), "preferred_batch_sizes": (9_999,)})
    triton.load(ServingConfiguration(target="cpu", threads=2, serving=serving))
    with pytest.raises(ConfigurationRefused, match="Triton does not load tiny_model: "):
        triton.load(ServingConfiguration.model_construct(target="cpu", threads=1, serving=impossible))
    triton.load(ServingConfiguration(target="cpu", threads=2, serving=serving))
    assert triton.config("tiny")["max_batch_size"] == serving.max_batch_size
    assert threads(triton.repository) == {2}
    assert threads(plan(workload, "cpu", workload.path.parent.parent).repository) == {1}


@pytest.mark.slow
@pytest.mark.integration
def test_a_search_on_a_real_triton_names_one_of_its_configurations(
    workload: WorkloadFolder, triton: TunedTriton
) -> None:
    serving = own(workload.workload, "cpu").serving
    space = [
        ServingConfiguration(
            target="cpu",
            threads=1,
            serving=serving.model_copy(update={"max_batch_size": batch, "preferred_batch_sizes": ()}),
        )
        for batch in (2, 8)
    ]
    race = Race(configurations=space, send=triton, limit=LIMIT, shortest_s=1.0, longest_s=45.0)
    if race.run() is EndReason.BOTTLENECK:
        pytest.skip(f"this machine is too busy: {race.complaint}")
    assert known(race.leader).configuration in space
    assert race.requests > 1000


SPELLCHECK = load_workload("spellcheck").workload


def test_a_dry_run_prints_the_space_and_starts_nothing(cli: Cli, tmp_path: Path) -> None:
    settings = (
        "targets=cpu,cpu-int8",
        "threads=1",
        "model_instances=1",
        "max_batch_sizes=1,8",
        "preferred_batch_sizes=[[], [4, 8]]",
        "max_queue_delays_ms=[0]",
    )
    words = [word for setting in settings for word in ("--set", f"tune.{setting}")]
    assert cli.json("tune", "spellcheck", *words, "--dry-run", "--json", "--runs", str(tmp_path)) == {
        "workload": "spellcheck",
        "configurations": [
            f"{target}, 1 × 1 thread, {rest}"
            for target in ("cpu", "cpu-int8")
            for rest in ("no batching", "batch 8, delay 0 ms", "batch 8 (4, 8), delay 0 ms")
        ],
        "left_out": {},
    }
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_search_takes_no_settings(cli: Cli, tmp_path: Path) -> None:
    folder = TuneFolder(tmp_path / "run")
    folder.begin(a_plan([own(SPELLCHECK, "cpu")]), SPELLCHECK, b"")
    resume = ["tune", "--resume", str(folder.path), "--dry-run"]
    assert cli.err(*resume, "--set", "tune.threads=[2]") == (
        f"--resume: {folder.path} has the settings of the search. Only --json and --dry-run may go with it.\n"
    )
    assert cli.out(*resume) == "cpu, 2 × 1 thread, batch 16 (4, 8), delay 0 ms\n1 configuration.\n"
