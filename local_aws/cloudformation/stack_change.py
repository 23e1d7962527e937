"""Brings a moto stack to a template: creates, updates with replacement, cleans up, or rolls back.

moto updates only resources whose own text changed, in no order, and cannot roll back. CloudFormation compares resolved
properties: a replaced model has a new name, so its endpoint configuration is replaced too. Here resources are visited
in order of dependence. Resources that a change replaces or drops are deleted after everything succeeded.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.parsing import (
    NULL_MODELS,
    OutputMap,
    ResourceMap,
    get_model_map,
    parse_and_create_resource,
    parse_and_delete_resource,
    parse_resource,
    parse_resource_and_generate_name,
)
from moto.core.utils import utcnow

from local_aws.cloudformation.recorded import schema_of

_INERT = frozenset({"AWS::CDK::Metadata", *NULL_MODELS})
"""Types that make nothing: the CDK writes its own version into a template as AWS::CDK::Metadata."""

_TEMPLATE_STATE = ("_template", "_resource_json_map", "input_parameters", "resolved_parameters", "lazy_condition_map")
"""The attributes of a moto resource map that belong to its template and not to its resources."""

OnEvent = Callable[[str, str, str, str, str | None], None]
"""Takes the logical id, type, physical id, status and reason of an event of a resource."""


@dataclass(slots=True)
class DeployedResource:
    """A resource as it was last made, with the resolved definition it was made from."""

    resource: Any
    resolved: dict[str, Any]
    updated: bool = False
    made_at: datetime = field(default_factory=utcnow)

    @property
    def physical_id(self) -> str:
        return str(getattr(self.resource, "physical_resource_id", "") or "")

    @property
    def reason(self) -> str | None:
        """Why the account only records it, if so."""
        return getattr(self.resource, "status_reason", None)


class ChangeFailed(Exception):
    """A change that failed. What it had done before is undone."""


def _failed(logical_id: str, reason: str) -> ChangeFailed:
    return ChangeFailed(f"The following resource(s) failed: [{logical_id}]. {reason}")


@dataclass(slots=True)
class StackChange:
    """One change of one stack. `deployed` is the stack's own record, which lives from change to change."""

    map: ResourceMap
    deployed: dict[str, DeployedResource]
    account_id: str
    region: str
    on_event: OnEvent
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _retired: list[DeployedResource] = field(default_factory=list)

    def apply(self, template: dict[str, Any], parameters: Mapping[str, Any]) -> OutputMap:
        """Brings the stack to the template and returns its outputs. `roll_back` undoes it after `ChangeFailed`."""
        for name in _TEMPLATE_STATE:
            if hasattr(self.map, name):
                self._undo.append(partial(setattr, self.map, name, getattr(self.map, name)))
        self.map.resolved_parameters = dict(self.map.resolved_parameters)
        with _failing("The template cannot be evaluated"):
            self.map._template = template
            self.map._resource_json_map = template["Resources"]
            self.map.input_parameters = dict(parameters)
            self.map.load_mapping()
            self.map.load_parameters()
            self.map.load_conditions()
            ordered = in_order(template["Resources"])
        self._check_types(template["Resources"])
        for logical_id in ordered:
            self._converge(logical_id, template["Resources"][logical_id])
        return self._evaluate_outputs(template)

    def roll_back(self) -> None:
        for undo in reversed(self._undo):
            try:
                undo()
            except Exception as error:  # the rest must still be undone
                self.on_event("", "", "", "ROLLBACK_FAILED", repr(error))

    def clean_up(self) -> None:
        """Deletes the resources that the change replaced or dropped. Those that fail are left, as by CloudFormation."""
        template = self.map._resource_json_map
        for logical_id in [name for name in reversed(list(self.deployed)) if name not in template]:
            self.map._parsed_resources.pop(logical_id, None)
            with contextlib.suppress(ChangeFailed):
                self._delete(logical_id, self.deployed.pop(logical_id))
        for old in reversed(self._retired):
            with contextlib.suppress(ChangeFailed):
                self._delete(old.resource.logical_resource_id, old)

    def _evaluate_outputs(self, template: dict[str, Any]) -> OutputMap:
        """Evaluates every output now: moto would do so in each DescribeStacks, and fail there."""
        outputs = OutputMap(self.map, template, self.map.stack_id)
        for name in outputs:
            with _failing(f"The output {name} cannot be evaluated"):
                outputs[name]
        with _failing("The exports cannot be evaluated"):
            _ = outputs.exports
        return outputs

    def delete_all(self) -> None:
        """Deletes every resource, the last made first. Raises `ChangeFailed`."""
        for logical_id in reversed(list(self.deployed)):
            self._delete(logical_id, self.deployed[logical_id])
            del self.deployed[logical_id]
            self.map._parsed_resources.pop(logical_id, None)

    def _makes(self, definition: Mapping[str, Any]) -> bool:
        condition = definition.get("Condition")
        return definition["Type"] not in _INERT and (not condition or self.map.lazy_condition_map[condition])

    def _check_types(self, resources: Mapping[str, Any]) -> None:
        """Raises `ChangeFailed` for types that cannot be made, before anything is created."""
        made = {logical_id: each["Type"] for logical_id, each in resources.items() if self._makes(each)}
        if unknown := {logical_id: kind for logical_id, kind in made.items() if kind not in get_model_map()}:
            raise _failed(", ".join(unknown), " ".join(map(refusal, sorted(set(unknown.values())))))

    def _converge(self, logical_id: str, definition: dict[str, Any]) -> None:
        kind = definition["Type"]
        if not self._makes(definition):
            return
        try:
            self._make(logical_id, definition)
        except Exception as error:  # moto raises errors of many classes; each means a failed resource
            reason = _reason(error)
            old = self.deployed.get(logical_id)
            verb, physical_id = ("UPDATE", old.physical_id) if old else ("CREATE", "")
            self.on_event(logical_id, kind, physical_id, f"{verb}_FAILED", reason)
            raise _failed(logical_id, reason) from error

    def _make(self, logical_id: str, definition: dict[str, Any]) -> None:
        _, resolved, kind = parse_resource(definition, self.map)
        schema, new = schema_of(kind), resolved.get("Properties", {})
        if schema and (problems := schema.problems(new)):
            raise ValidationError(message=f"Properties validation failed: {'; '.join(problems)}")
        old = self.deployed.get(logical_id)
        before = old.resolved.get("Properties", {}) if old else {}
        if old is None:
            self._create(logical_id, definition, resolved)
        elif old.resolved["Type"] != kind or (schema and schema.replaced_by(before, new)):
            del self.map._parsed_resources[logical_id]
            self._retired.append(old)
            self._create(logical_id, definition, resolved, old)
        elif before != new:
            self._update(logical_id, definition, resolved, old)

    def _create(
        self, logical_id: str, definition: dict[str, Any], resolved: dict[str, Any], old: DeployedResource | None = None
    ) -> None:
        kind, verb = definition["Type"], "UPDATE" if old else "CREATE"
        self.on_event(logical_id, kind, "", f"{verb}_IN_PROGRESS", None)
        # Registered before the creation can fail: a replaced resource is restored after those that depend on it.
        self._undo.append(lambda: self._restore(logical_id, old))
        resource: Any = parse_and_create_resource(logical_id, definition, self.map, self.account_id, self.region)
        self._adopt(logical_id, kind, resource, resolved, verb)
        new = self.deployed[logical_id]
        self._undo.append(lambda: self._delete(logical_id, new))

    def _update(
        self, logical_id: str, definition: dict[str, Any], resolved: dict[str, Any], old: DeployedResource
    ) -> None:
        kind = definition["Type"]
        self.on_event(logical_id, kind, old.physical_id, "UPDATE_IN_PROGRESS", None)
        model, ready, name = parse_resource_and_generate_name(logical_id, definition, self.map)

        def update(original: Any, properties: dict[str, Any]) -> Any:
            return model.update_from_cloudformation_json(original, name, properties, self.account_id, self.region)

        self._adopt(logical_id, kind, update(old.resource, ready), resolved, "UPDATE")

        def undo() -> None:
            resource = update(self.deployed[logical_id].resource, old.resolved)
            self._adopt(logical_id, kind, resource, old.resolved, "UPDATE")

        self._undo.append(undo)

    def _adopt(self, logical_id: str, kind: str, resource: Any, resolved: dict[str, Any], verb: str) -> None:
        resource.cf_resource_type = kind
        resource.logical_resource_id = logical_id
        self.map._parsed_resources[logical_id] = resource
        self.deployed.pop(logical_id, None)  # keeps the record in the order in which resources were made
        self.deployed[logical_id] = DeployedResource(resource, resolved, updated=verb == "UPDATE")
        made = self.deployed[logical_id]
        self.on_event(logical_id, kind, made.physical_id, f"{verb}_COMPLETE", made.reason)

    def _restore(self, logical_id: str, old: DeployedResource | None) -> None:
        self.map._parsed_resources.pop(logical_id, None)
        self.deployed.pop(logical_id, None)
        if old is not None:
            self.map._parsed_resources[logical_id] = old.resource
            self.deployed[logical_id] = old

    def _delete(self, logical_id: str, item: DeployedResource) -> None:
        kind = item.resolved["Type"]
        if item.resolved.get("DeletionPolicy", "Delete").startswith("Retain"):
            self.on_event(logical_id, kind, item.physical_id, "DELETE_SKIPPED", None)
            return
        self.on_event(logical_id, kind, item.physical_id, "DELETE_IN_PROGRESS", None)
        try:
            self._delete_resource(item)
        except Exception as error:
            self.on_event(logical_id, kind, item.physical_id, "DELETE_FAILED", str(error))
            raise _failed(logical_id, str(error)) from error
        self.on_event(logical_id, kind, item.physical_id, "DELETE_COMPLETE", None)

    def _delete_resource(self, item: DeployedResource) -> None:
        # Like moto: some of its resources delete themselves, the others are deleted by their class.
        if callable(method := getattr(item.resource, "delete", None)):
            try:
                method(self.account_id, self.region)
                return
            except TypeError:  # its `delete` means something else
                pass
        parse_and_delete_resource(item.physical_id, item.resolved, self.account_id, self.region)


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ChangeFailed(f"{what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return str(getattr(error, "message", None) or error) or type(error).__name__


def refusal(kind: str) -> str:
    """Returns in one sentence why this account cannot make a resource of this type."""
    if kind.startswith("Custom::") or kind == "AWS::CloudFormation::CustomResource":
        return f"{kind} is made by a Lambda function, and this local account runs none: do without the custom resource."
    return f"This local account has no resource type {kind}."


def in_order(resources: Mapping[str, Any]) -> list[str]:
    """Orders logical ids so that each comes after all it refers to. Raises moto's `ValidationError` for a circle."""
    referred = {name: sorted(set(references(each)) & set(resources)) for name, each in resources.items()}
    try:
        return list(TopologicalSorter(referred).static_order())
    except CycleError as error:
        circle = ", ".join(sorted(set(error.args[1])))
        raise ValidationError(message=f"Circular dependency between resources: [{circle}]") from error


def references(node: Any) -> Iterator[str]:
    """Yields the names in Ref, Fn::GetAtt, Fn::Sub and DependsOn: logical ids, and other names such as parameters."""
    if isinstance(node, list):
        for item in node:
            yield from references(item)
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        match key:
            case "Ref" | "DependsOn" if isinstance(value, str):
                yield value
            case "DependsOn":  # a resource's; the DependsOn of a task definition's container holds mappings
                yield from (name for name in value if isinstance(name, str))
            case "Fn::GetAtt":
                yield value[0] if isinstance(value, list) else value.split(".")[0]
            case "Fn::Sub":
                text, named = (value, {}) if isinstance(value, str) else value
                yield from (part.split("}")[0].split(".")[0] for part in text.split("${")[1:])
                yield from references(named)
            case _:
                yield from references(value)
