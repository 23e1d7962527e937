"""moto's CloudFormation with changes that run as the service's do: in a thread, with events, statuses and rollback."""

import contextlib
import copy
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from moto.cloudformation.exceptions import AlreadyExistsException, ValidationError
from moto.cloudformation.models import ChangeSet, CloudFormationBackend, Event, Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult
from moto.s3.exceptions import S3ClientError

from local_aws.cloudformation import recorded
from local_aws.cloudformation import template as templates
from local_aws.cloudformation.stack_change import ChangeFailed, DeployedResource, StackChange

SHOWN_WITHIN_S = 5.0
"""A change begins when DescribeStacks has shown it, or after this time. A small stack would be complete before."""
log = logging.getLogger(__name__)


class ChangeSetNotFound(ServiceException):
    code = "ChangeSetNotFound"


class LocalCloudFormationBackend(CloudFormationBackend):
    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self._deployed: dict[str, dict[str, DeployedResource]] = {}
        self._changing: dict[str, threading.Event] = {}
        """An event for each stack that changes, set when DescribeStacks has shown the change."""
        self._lock = threading.Lock()

    def create_stack(self, name: str, template: str, parameters: dict[str, Any], *_: Any, **named: Any) -> Stack:
        """Returns at once with the stack CREATE_IN_PROGRESS, like the service."""
        if any(stack.name == name for stack in self.stacks.values()):
            raise AlreadyExistsException(f"Stack {name} already exists")
        more = (named.get(each) for each in ("notification_arns", "tags", "role_arn"))
        change_set, stack_id = self.create_change_set(name, "create", template, parameters, "", "CREATE", *more)
        self.stacks[stack_id].events.clear()  # those of the review that a change set begins with
        self.execute_change_set(change_set)
        self.change_sets.pop(change_set, None)
        return self.stacks[stack_id]

    def update_stack(self, name: str, template: str, role_arn: str | None, parameters: Any, tags: Any) -> Stack:
        _register_types(template)
        stack = self.get_stack(name)
        resolved = self._resolve_update_parameters(instance=stack, incoming_params=parameters)
        self._start(stack, "UPDATE", lambda: self._apply(stack, "UPDATE", template, resolved))
        return stack

    def create_change_set(
        self, stack_name: str, change_set_name: str, template: str, *arguments: Any, **named: Any
    ) -> tuple[str, str]:
        """Parses the template first: moto would leave a stack in REVIEW_IN_PROGRESS behind."""
        _register_types(template)
        return super().create_change_set(stack_name, change_set_name, template, *arguments, **named)

    def validate_template(self, template: str) -> list[Any]:
        """Checks the template's form. moto would run cfn-lint, which the account does without."""
        templates.parse(template)
        return []

    def describe_change_set(self, change_set_name: str, stack_name: str | None = None) -> ChangeSet:
        """Finds a change set by id, or by name within a stack: the CDK gives every stack's change set the same name."""
        for key, change_set in self.change_sets.items():
            named = change_set_name == change_set.change_set_name
            if change_set_name == key or (named and stack_name in (None, change_set.stack_name, change_set.stack_id)):
                return change_set
        raise ChangeSetNotFound(f"ChangeSet [{change_set_name}] does not exist")

    def delete_change_set(self, change_set_name: str, stack_name: str | None = None) -> None:
        """Succeeds even when there is none, like the service."""
        with contextlib.suppress(ChangeSetNotFound):
            del self.change_sets[self.describe_change_set(change_set_name, stack_name).change_set_id]

    def execute_change_set(self, change_set_name: str, stack_name: str | None = None) -> None:
        change_set = self.describe_change_set(change_set_name, stack_name)
        stack, verb = self.stacks[change_set.stack_id], change_set.change_set_type
        self._start(stack, verb, lambda: self._apply(stack, verb, change_set.template, change_set.parameters))
        change_set.execution_status = "EXECUTE_COMPLETE"

    def describe_stacks(self, name_or_stack_id: str) -> list[Stack]:
        """Returns copies: a change may end before the answer is written."""
        copies = [copy.copy(stack) for stack in super().describe_stacks(name_or_stack_id)]
        for stack in copies:
            if shown := self._changing.get(stack.stack_id):
                shown.set()
        return copies

    def delete_stack(self, name_or_stack_id: str) -> None:
        for stack in list(self.stacks.values()):
            if name_or_stack_id in (stack.name, stack.stack_id):
                if stack.enable_termination_protection:
                    refused = f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled"
                    raise ValidationError(message=refused)
                self._start(stack, "DELETE", lambda stack=stack: self._delete(stack))  # type: ignore[misc]

    def described_resources(self, stack_name: str) -> list[dict[str, Any]]:
        """Returns the resources in the shape of DescribeStackResources, in the order in which they were made."""
        stack = self.get_stack(stack_name)
        return [
            {
                "StackName": stack.name,
                "StackId": stack.stack_id,
                "LogicalResourceId": logical_id,
                "PhysicalResourceId": item.physical_id,
                "ResourceType": item.resolved["Type"],
                "Timestamp": item.made_at,
                "ResourceStatus": "UPDATE_COMPLETE" if item.updated else "CREATE_COMPLETE",
                "ResourceStatusReason": item.reason,
            }
            for logical_id, item in self._deployed.get(stack.stack_id, {}).items()
        ]

    def _start(self, stack: Stack, verb: str, work: Callable[[], None]) -> None:
        with self._lock:
            if stack.stack_id in self._changing:
                raise ValidationError(
                    message=f"Stack:{stack.stack_id} is in {stack.status} state and can not be updated."
                )
            shown = self._changing[stack.stack_id] = threading.Event()
        self._set(stack, f"{verb}_IN_PROGRESS", "User Initiated")

        def run() -> None:
            shown.wait(SHOWN_WITHIN_S)
            try:
                work()
            except Exception as error:  # a stack must not stay IN_PROGRESS for ever
                self._set(stack, f"{verb}_FAILED", repr(error))
            finally:
                del self._changing[stack.stack_id]

        threading.Thread(target=run, name=f"stack-{stack.name}", daemon=True).start()

    def _apply(self, stack: Stack, verb: str, template: str, parameters: Mapping[str, Any]) -> None:
        change, updates = self._change(stack), verb == "UPDATE"
        try:
            outputs = change.apply(templates.parse(template), parameters)
        except ChangeFailed as error:
            rollback = "UPDATE_ROLLBACK" if updates else "ROLLBACK"
            self._set(stack, f"{rollback}_IN_PROGRESS", str(error))
            change.roll_back()
            if updates:
                self._set(stack, "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS", str(error))
            self._set(stack, f"{rollback}_COMPLETE", str(error))
            return
        if updates:
            self._set(stack, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        change.clean_up()
        stack.template = template
        stack._parse_template()
        stack.parameters = dict(parameters)
        stack.description = stack.template_dict.get("Description")
        stack.output_map = outputs
        self.exports.update({export.name: export for export in stack.exports})
        self._set(stack, f"{verb}_COMPLETE")

    def _delete(self, stack: Stack) -> None:
        exported = [export.name for export in stack.exports] if stack.template_dict else []
        try:
            self._change(stack).delete_all()
        except ChangeFailed as error:
            self._set(stack, "DELETE_FAILED", str(error))
            return
        for name in exported:
            self.exports.pop(name, None)
        for key in [key for key, each in self.change_sets.items() if each.stack_id == stack.stack_id]:
            del self.change_sets[key]
        # In this order, so that no caller finds the stack by its name after it is deleted.
        self.deleted_stacks[stack.stack_id] = self.stacks.pop(stack.stack_id)
        self._set(stack, "DELETE_COMPLETE")

    def _change(self, stack: Stack) -> StackChange:
        return StackChange(
            map=stack.resource_map,
            deployed=self._deployed.setdefault(stack.stack_id, {}),
            account_id=self.account_id,
            region=self.region_name,
            on_event=lambda logical_id, kind, physical_id, status, reason: stack.events.append(
                Event(stack.stack_id, stack.name, logical_id, physical_id, kind, status, reason, "{}")
            ),
        )

    def _set(self, stack: Stack, status: str, reason: str | None = None) -> None:
        # The event comes first, because a caller that waits for the status reads the events next.
        stack._add_stack_event(status, resource_status_reason=reason)
        stack.status = status
        stack.status_reason = reason  # type: ignore[attr-defined]  # read by moto's serializer
        log.info(f"stack {stack.name}: {status}{f' ({reason})' if reason and reason != 'User Initiated' else ''}")


def _register_types(template: str) -> None:
    recorded.register(each["Type"] for each in templates.parse(template)["Resources"].values())


class LocalCloudFormationResponse(CloudFormationResponse):
    """Finds change sets by stack and name, and passes on previous parameter values as they were given.

    moto takes the resolved value: the content of an `AWS::SSM::Parameter::Value`, and not the parameter's name.
    """

    def _get_param(self, param_name: str, if_none: Any = None) -> Any:
        value = super()._get_param(param_name, if_none)
        return [self._as_given(parameter) for parameter in value] if param_name == "Parameters" and value else value

    def _as_given(self, parameter: Mapping[str, Any]) -> Mapping[str, Any]:
        if not parameter.get("UsePreviousValue"):
            return parameter
        stack = self._backend.get_stack(super()._get_param("StackName"))
        key = parameter["ParameterKey"]
        declared = stack.template_dict.get("Parameters", {}).get(key, {})
        return {"ParameterKey": key, "ParameterValue": stack.parameters.get(key, declared.get("Default"))}

    def _get_stack_from_s3_url(self, template_url: str) -> str:
        try:
            return super()._get_stack_from_s3_url(template_url)
        except (AttributeError, S3ClientError, ValueError) as error:
            raise ValidationError(message=f"S3 error: there is no template at {template_url}") from error

    def describe_change_set(self) -> ActionResult:
        return ActionResult(self._backend.describe_change_set(*self._named()))

    def delete_change_set(self) -> EmptyResult:
        self._backend.delete_change_set(*self._named())
        return EmptyResult()

    def update_termination_protection(self) -> ActionResult:
        stack = self._backend.get_stack(self._get_param("StackName"))
        stack.enable_termination_protection = self._get_bool_param("EnableTerminationProtection")
        return ActionResult({"StackId": stack.stack_id})

    def describe_stack_resources(self) -> ActionResult:
        """Adds each resource's reason, where the account says what it only records."""
        wanted = self._get_param("LogicalResourceId")
        resources = self._backend.described_resources(self._get_param("StackName"))
        shown = [each for each in resources if wanted in (None, each["LogicalResourceId"])]
        return ActionResult({"StackResources": shown})

    def list_stack_resources(self) -> ActionResult:
        resources = self._backend.described_resources(self._get_param("StackName"))
        summaries = [{**each, "LastUpdatedTimestamp": each["Timestamp"]} for each in resources]
        return ActionResult({"StackResourceSummaries": summaries})

    def _named(self) -> tuple[str, str | None]:
        return self._get_param("ChangeSetName"), self._get_param("StackName")

    @property
    def _backend(self) -> LocalCloudFormationBackend:
        return self.cloudformation_backend  # type: ignore[return-value]  # installed before the server starts
