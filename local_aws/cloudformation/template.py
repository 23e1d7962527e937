"""Parses CloudFormation templates as data, for moto's CloudFormation, whose own loader of YAML runs Python.

A template is JSON or the YAML that CloudFormation supports: short forms such as `!Ref`, no other tag, no alias. Source:
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/template-formats.html
"""

import json
from types import ModuleType, SimpleNamespace
from typing import Any

import yaml  # type: ignore[import-untyped]
from moto.cloudformation import models, responses
from moto.cloudformation.exceptions import ValidationError

MAX_DEPTH = 100
"""Most levels of a template. moto follows the levels by recursion."""

_FUNCTIONS = frozenset(
    f"!{name}"
    for name in (
        *("And", "Base64", "Cidr", "Equals", "FindInMap", "ForEach", "GetAtt", "GetAZs", "If", "ImportValue", "Join"),
        *("Length", "Not", "Or", "Select", "Split", "Sub", "ToJsonString", "Transform"),
    )
)
_UNSUPPORTED = ("binary", "omap", "pairs", "set")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValidationError(message="Template error: YAML aliases are not allowed in CloudFormation templates")
        return super().compose_node(parent, index)


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag not in {f"tag:yaml.org,2002:{name}" for name in _UNSUPPORTED}
}
# CloudFormation has no timestamps: 2012-10-17 is a text.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", yaml.SafeLoader.construct_yaml_str)


def _construct_short_form(loader: _Loader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        value: Any = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    else:
        value = node.value
    if node.tag == "!GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {f"Fn::{node.tag[1:]}" if node.tag in _FUNCTIONS else node.tag[1:]: value}


for _tag in ("!Condition", "!Ref", *_FUNCTIONS):
    _Loader.add_constructor(_tag, _construct_short_form)


def parse(text: str) -> dict[str, Any]:
    """Returns a template. Raises moto's `ValidationError`, which is a 400."""
    if not text:
        raise ValidationError(message="Either Template URL or Template Body must be specified.")
    try:
        template = _load(text)
        _check_depth(template, MAX_DEPTH)
    except RecursionError as error:
        raise _too_deep() from error
    _check_structure(template)
    return template  # type: ignore[no-any-return]


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValidationError(message=f"Template format error: {problem}{where}.") from error
    except (TypeError, ValueError) as error:  # a mapping as a key, a number out of range
        raise ValidationError(message=f"Template format error: {error}.") from error


def _check_depth(node: Any, levels: int) -> None:
    if levels < 0:
        raise _too_deep()
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _check_depth(child, levels - 1)


def _too_deep() -> ValidationError:
    return ValidationError(message=f"Template format error: the template has more than {MAX_DEPTH} levels.")


def _check_structure(template: Any) -> None:
    if not isinstance(template, dict):
        raise ValidationError(message="Template format error: unsupported structure.")
    for section in ("Conditions", "Mappings", "Outputs", "Parameters", "Resources"):
        value = template.get(section, {})
        if not isinstance(value, dict):
            raise ValidationError(message=f"Template format error: [/{section}] must be an object.")
        for name, member in value.items():
            if section == "Conditions" and isinstance(member, bool):
                continue
            if not isinstance(member, dict):
                raise ValidationError(message=f"Template format error: [/{section}/{name}] must be an object.")
            if section in ("Parameters", "Resources") and not isinstance(member.get("Type"), str):
                message = f"Template format error: [/{section}/{name}] must contain a Type member."
                raise ValidationError(message=message)
    if not template.get("Resources"):
        raise ValidationError(message="Template format error: At least one Resources member must be defined.")


# moto adds its short forms to all loaders of YAML at each template.
_yaml: Any = SimpleNamespace(load=lambda text, **_: parse(text), Loader=None, add_multi_constructor=lambda *_: None)


def install() -> None:
    """Makes moto's CloudFormation parse templates here, also those of nested stacks and stack sets."""
    module: ModuleType
    for module in (models, responses):
        vars(module)["yaml"] = _yaml
