"""The table of regions and zones is what moto carries of EC2's own answer."""

import gzip
import json
from collections import defaultdict
from importlib.resources import files
from typing import Any

from stacks import instance_offerings


def test_the_table_is_the_one_of_the_installed_moto() -> None:
    """A newer moto rewrites it and fails: read the diff, then run again."""
    offered: dict[str, dict[str, set[str]]] = {family: defaultdict(set) for family in ("g4dn", "g5", "inf1", "inf2")}
    folder = files("moto") / "ec2/resources/instance_type_offerings/availability-zone-id"
    tables = {file.name.partition(".")[0]: file for file in sorted(folder.iterdir(), key=lambda file: file.name)}
    for region, file in tables.items():
        for row in json.loads(gzip.decompress(file.read_bytes())):
            if (family := row["InstanceType"].split(".")[0]) in offered:
                offered[family][region].add(row["Location"])
    listed = {family: {r: sorted(zones) for r, zones in sorted(found.items())} for family, found in offered.items()}
    expected = _text(list(tables), listed)
    actual = instance_offerings.FILE.read_text("utf-8")
    if actual != expected:
        instance_offerings.FILE.write_text(expected, "utf-8")
    assert actual == expected, f"{instance_offerings.FILE} was rewritten: review the difference"


def _text(regions: list[str], families: dict[str, dict[str, list[str]]]) -> str:
    """One line for each region of a family."""
    blocks = [
        f'  "{family}": {{\n' + ",\n".join(f'   "{r}": {_json(zones)}' for r, zones in found.items()) + "\n  }"
        for family, found in families.items()
    ]
    source = "EC2's DescribeInstanceTypeOfferings by zone id, as moto carries it"
    head = f' "source": {_json(source)},\n "regions": {_json(regions)},\n "families": {{\n'
    return "{\n" + head + ",\n".join(blocks) + "\n }\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value)


def test_a_family_that_is_not_in_the_table_is_not_known() -> None:
    assert instance_offerings.zones("c5") is None
    assert "us-east-1" in (instance_offerings.zones("inf1") or {})
