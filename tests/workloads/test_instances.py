"""The tables of instance types are what moto and botocore carry of AWS's own answers, and names tell hardware."""

import gzip
import json
from collections import defaultdict
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from tests.builders import assert_is_golden
from workloads import ROOT, instances, load_workload, workload_names
from workloads.instances import (
    Hardware,
    InstanceShape,
    candidates,
    has_accelerator,
    has_local_storage,
    instance_shape,
)

FILE = Path(instances.__file__).with_name("instances.json")
ECS_FAMILIES = ("c5", "c6i", "c7i", "c8i", "m5", "m6i", "m7i", "inf1", "inf2")
"""Their sizes are listed even where SageMaker has none of that name."""
OFFERED_FAMILIES = ("g4dn", "g5", "g6", "g6e", "inf1", "inf2", "trn1")


def test_the_tables_are_those_of_the_installed_moto_and_botocore() -> None:
    """A newer moto rewrites the file and fails: read the difference, then run again."""
    assert_is_golden(FILE, _text(_shapes(), *_offerings()))


def _shapes() -> dict[str, dict[str, Any]]:
    model = botocore.session.get_session().get_service_model("sagemaker")
    hosted = {name.removeprefix("ml.") for name in model.shape_for("ProductionVariantInstanceType").metadata["enum"]}
    types = json.loads(gzip.decompress((files("moto") / "ec2/resources/instance_types.json.gz").read_bytes()))
    return {
        name: {
            "vcpus": known["VCpuInfo"]["DefaultVCpus"],
            "cores": known["VCpuInfo"]["DefaultCores"],
            "memory_gib": _plain(known["MemoryInfo"]["SizeInMiB"] / 1024),
            "gpus": sum(gpu["Count"] for gpu in known.get("GpuInfo", {}).get("Gpus", [])),
            "neuron_chips": _neuron_chips(known),
            **_gpu_memory(known),
            **({} if name in hosted else {"ec2_only": True}),
        }
        for name, known in sorted(types.items())
        if name in hosted or (name.split(".")[0] in ECS_FAMILIES and name.endswith("large"))
    }


def _gpu_memory(known: dict[str, Any]) -> dict[str, Any]:
    mib = known.get("GpuInfo", {}).get("TotalGpuMemoryInMiB")
    return {"gpu_memory_gib": _plain(round(mib / 1024, 2))} if mib else {}


def _neuron_chips(known: dict[str, Any]) -> int:
    neuron = known.get("NeuronInfo", {}).get("NeuronDevices", [])
    inferentia = known.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
    return sum(each["Count"] for each in neuron or inferentia)


def _plain(number: float) -> float | int:
    return int(number) if number == int(number) else number


def _offerings() -> tuple[list[str], dict[str, dict[str, list[str]]]]:
    offered: dict[str, dict[str, set[str]]] = {family: defaultdict(set) for family in OFFERED_FAMILIES}
    folder = files("moto") / "ec2/resources/instance_type_offerings/availability-zone-id"
    tables = {file.name.partition(".")[0]: file for file in sorted(folder.iterdir(), key=lambda file: file.name)}
    for region, file in tables.items():
        for row in json.loads(gzip.decompress(file.read_bytes())):
            if (family := row["InstanceType"].split(".")[0]) in offered:
                offered[family][region].add(row["Location"])
    return list(tables), {
        family: {region: sorted(zones) for region, zones in sorted(regions.items())}
        for family, regions in offered.items()
    }


def _text(shapes: dict[str, Any], regions: list[str], families: dict[str, dict[str, list[str]]]) -> str:
    """Returns the file with a line for each type and for each region of a family."""
    types = ",\n".join(f'   "{name}": {json.dumps(shape)}' for name, shape in shapes.items())
    blocks = [
        f'   "{family}": {{\n' + ",\n".join(f'    "{region}": {json.dumps(ids)}' for region, ids in zones.items())
        for family, zones in families.items()
    ]
    offered = "\n   },\n".join(blocks) + "\n   }"
    source = (
        f"DescribeInstanceTypes of Amazon EC2, as recorded in moto {version('moto')}; an ml. type is the EC2 type of "
        "that name"
    )
    return (
        f'{{\n "shapes": {{\n  "source": {json.dumps(source)},\n  "types": {{\n{types}\n  }}\n }},\n'
        ' "offerings": {\n  "source": "EC2\'s DescribeInstanceTypeOfferings by zone id, as recorded in moto",\n'
        f'  "regions": {json.dumps(regions)},\n  "families": {{\n{offered}\n  }}\n }}\n}}\n'
    )


def test_the_shape_of_an_instance_type_is_known_or_none() -> None:
    assert instance_shape("ml.g4dn.12xlarge") == InstanceShape(
        vcpus=48, cores=24, memory_gib=192, gpus=4, neuron_chips=0, gpu_memory_gib=64
    )
    assert instance_shape("inf1.6xlarge") == InstanceShape(vcpus=24, cores=12, memory_gib=48, gpus=0, neuron_chips=4)
    assert instance_shape("ml.x99.xlarge") is None
    assert instance_shape("m5.8xlarge") is not None
    assert instance_shape("ml.m5.8xlarge") is None, "only EC2 has it"


@pytest.mark.parametrize(
    ("kind", "copy_gib", "types"),
    [
        ("x86 CPU", 0.4, ("ml.c5.xlarge", "ml.c7i.xlarge", "ml.m7i.xlarge")),
        ("x86 CPU", 5.0, ("ml.m7i.xlarge",)),
        ("x86 CPU", 50.0, ()),
        ("GPU", 0.4, ("ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6.xlarge", "ml.g6e.xlarge")),
        ("GPU", 30.0, ("ml.g6e.xlarge",)),
        ("Inferentia 2", 0.4, ("ml.inf2.xlarge",)),
        ("Arm CPU", 0.4, ()),
    ],
)
def test_candidates_are_the_smallest_types_with_the_hardware_and_room_for_the_weights(
    kind: Hardware, copy_gib: float, types: tuple[str, ...]
) -> None:
    assert candidates(kind, copy_gib) == types


def test_every_type_that_a_workload_names_has_a_shape() -> None:
    for name in workload_names(ROOT / "workloads"):
        for target in load_workload(name).workload.targets.values():
            for instance_type in target.instance_types:
                assert instance_shape(instance_type) is not None, instance_type


@pytest.mark.parametrize(
    ("instance_type", "accelerator", "local_storage"),
    [
        ("ml.c5.xlarge", False, False),
        ("ml.c5d.xlarge", False, True),
        ("ml.m6g.large", False, False),
        ("ml.m6gd.large", False, True),
        ("ml.g4dn.xlarge", True, True),
        ("ml.g5.xlarge", True, True),
        ("ml.p3.2xlarge", True, False),
        ("ml.inf1.xlarge", True, False),
        ("ml.trn1.2xlarge", True, True),
    ],
)
def test_an_instance_types_name_tells_its_hardware(instance_type: str, accelerator: bool, local_storage: bool) -> None:
    assert has_accelerator(instance_type) == accelerator
    assert has_local_storage(instance_type) == local_storage
