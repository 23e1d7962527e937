"""The image of ours in a template: its digest, and what is said where there is none."""

import json
import re
from pathlib import Path

import pytest
from aws_cdk import Environment
from aws_cdk.assertions import Annotations, Match

from stacks.context import Options
from tests.stacks.miniature import Repository, Synthesis, as_committed
from workloads import ROOT, own_images, workload_names
from workloads.instances import NEURON_FAMILIES
from workloads.own_images import TRITON_LOCKS, OwnImage, content_of, image_file

IRELAND = Environment(account="123456789012", region="eu-west-1")
DIGEST = "sha256:" + "d" * 64
KIND = "triton-25.09-cpu"
EVERY_KIND = {"cpu", *TRITON_LOCKS, *NEURON_FAMILIES.values()}


def push(repository: Repository, kind: str = KIND, **changes: str) -> None:
    registry = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
    values = {"kind": kind, "registry": registry, "repository": "team", "digest": DIGEST, "content": content_of(kind)}
    OwnImage(**{**values, **changes}).write_json(image_file(repository.root, kind))


def errors(synthesis: Synthesis) -> list[str]:
    found = Annotations.from_stack(synthesis.stack).find_error("*", Match.any_value())
    return [str(message.entry.data) for message in found]


def image(synthesis: Synthesis) -> str:
    joined = synthesis.only("AWS::SageMaker::Model")["PrimaryContainer"]["Image"]["Fn::Join"][1]
    return "".join(part if isinstance(part, str) else f"<{part['Ref']}>" for part in joined)


def test_a_template_names_the_image_by_its_digest(repository: Repository) -> None:
    push(repository)
    synthesis = repository.synthesise(IRELAND)
    assert image(synthesis) == f"123456789012.dkr.ecr.eu-west-1.<AWS::URLSuffix>/team@{DIGEST}"
    assert errors(synthesis) == []
    assert ":ecr:eu-west-1:123456789012:repository/team" in str(synthesis.json)


def test_another_image_is_another_template(repository: Repository) -> None:
    push(repository)
    before = image(repository.synthesise(IRELAND))
    push(repository, digest="sha256:" + "e" * 64)
    assert image(repository.synthesise(IRELAND)) != before


def test_a_missing_image_is_an_error_with_the_build_command(repository: Repository) -> None:
    assert errors(repository.synthesise(IRELAND)) == [
        f"{repository.workload_file}: {image_file(repository.root, KIND)} does not exist: our image '{KIND}', which "
        f"the workload needs, was not built. Build and push it with `bash scripts/release/build_image.sh {KIND}`, or "
        "set hosting.image_uri to an image of your own."
    ]


def test_an_outdated_image_is_an_error(repository: Repository) -> None:
    push(repository, content="0" * 64)
    assert errors(repository.synthesise(IRELAND)) == [
        f"{repository.workload_file}: {image_file(repository.root, KIND)}: our image '{KIND}' was built from other "
        f"files than containers/ has now. Build and push it with `bash scripts/release/build_image.sh {KIND}`, or set "
        "hosting.image_uri to an image of your own."
    ]


@pytest.mark.parametrize(
    ("region", "registry"),
    [("eu-west-1", "210987654321.dkr.ecr.eu-west-1"), ("us-east-1", "123456789012.dkr.ecr.us-east-1")],
    ids=["in the release's region", "in another region"],
)
def test_a_stage_elsewhere_pulls_from_the_release_or_from_its_replica(
    region: str, registry: str, repository: Repository
) -> None:
    push(repository, registry="210987654321.dkr.ecr.eu-west-1.amazonaws.com")
    environment = Environment(account="123456789012", region=region)
    synthesis = repository.synthesise(environment, Options(image_account="210987654321"))
    assert image(synthesis) == f"{registry}.<AWS::URLSuffix>/team@{DIGEST}"
    account, _, _, region = registry.split(".")
    assert f":ecr:{region}:{account}:repository/team" in str(synthesis.json)
    assert errors(synthesis) == []


def test_an_image_in_another_region_is_an_error(repository: Repository) -> None:
    push(repository)
    virginia = Environment(account="123456789012", region="us-east-1")
    assert errors(repository.synthesise(virginia)) == [
        f"{repository.workload_file}: our image '{KIND}' is in 123456789012.dkr.ecr.eu-west-1.amazonaws.com, and not "
        "in account 123456789012 in us-east-1. Build and push it with "
        f"`bash scripts/release/build_image.sh {KIND}`, or set hosting.image_uri to an image of your own."
    ]


def test_the_local_account_pulls_no_image(repository: Repository) -> None:
    synthesis = repository.synthesise(IRELAND, Options(local=True))
    assert errors(synthesis) == []
    assert synthesis.notes("image:local") == [
        f"{repository.workload_file}: local_aws pulls no image. AWS would pull our image '{KIND}', which "
        f"`bash scripts/release/build_image.sh {KIND}` builds."
    ]


def test_without_an_account_the_template_names_the_images_tag(
    unmeasured: Synthesis,
) -> None:
    assert errors(unmeasured) == []
    (note,) = unmeasured.notes("image:missing")
    assert note.endswith(
        "was not built. Before a deployment to AWS, build and push it with "
        f"`bash scripts/release/build_image.sh {KIND}`."
    )
    tag = f"{KIND}-{content_of(KIND)}"
    assert image(unmeasured) == f"<AWS::AccountId>.dkr.ecr.<AWS::Region>.<AWS::URLSuffix>/{own_images.REPOSITORY}:{tag}"


@pytest.mark.parametrize("version", ["24.09", "25.04", "25.09", "26.05"])
def test_a_cuda_build_is_deployed_with_the_image_that_has_pytorch(repository: Repository, version: str) -> None:
    repository.host("cuda", triton_version=version)
    push(repository, f"triton-{version}-gpu-torch")
    synthesis = repository.synthesise(IRELAND)
    assert errors(synthesis) == []
    assert image(synthesis).endswith(f"/team@{DIGEST}")
    (variant,) = synthesis.only("AWS::SageMaker::EndpointConfig")["ProductionVariants"]
    assert variant["InstanceType"] == "ml.g4dn.xlarge"


def test_an_eager_build_is_deployed_to_the_local_account_only(repository: Repository) -> None:
    text = repository.workload_file.read_text("utf-8")
    repository.workload_file.write_text(text.replace('runtime = "cuda"', 'runtime = "cuda"\nexecution = "eager"'))
    repository.host("cuda")
    push(repository, "triton-24.09-gpu-torch")
    assert errors(repository.synthesise(IRELAND)) == [
        f"{repository.workload_file}: targets.cuda.execution: got 'eager', which only the local account serves: the "
        "image's PyTorch does not load what the build's exports. Choose traced or cuda-graphs, or set "
        "hosting.image_uri to your own image."
    ]
    assert errors(repository.synthesise(IRELAND, Options(local=True))) == []


@pytest.mark.parametrize("workload", workload_names(ROOT / "workloads"))
def test_the_release_builds_what_the_template_of_a_workload_names(tmp_path: Path, workload: str) -> None:
    """All images of ours are pushed, each with its own digest; the template has those of its kinds and no other."""
    repository = as_committed(tmp_path, workload)
    digests = {kind: f"sha256:{number:064x}" for number, kind in enumerate(sorted(EVERY_KIND), start=1)}
    for kind, digest in digests.items():
        push(repository, kind, digest=digest)
    synthesis = repository.synthesise(IRELAND)
    assert errors(synthesis) == []
    needed = {digests[kind] for kind in own_images.kinds_of(repository.folder.workload)}
    assert set(re.findall(r"sha256:\w{64}", json.dumps(synthesis.json))) == needed
