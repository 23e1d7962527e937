"""The deletion of an endpoint that may still start or update, against SageMaker's documented refusals."""

from typing import Any

import pytest

from aws_api.errors import AwsRefused, AwsUnavailable, NotFound
from aws_api.sagemaker import SageMakerAccount
from workloads import Interrupted

BUSY = AwsRefused("DeleteEndpoint", "ValidationException", 'Cannot update in-progress endpoint "arn".')
DENIED = AwsRefused("DeleteEndpoint", "AccessDeniedException", "Not you.")
LEFT = (
    "The endpoint e may still exist and costs by the hour. Delete it: aws sagemaker delete-endpoint --endpoint-name e"
)


class Account(SageMakerAccount):
    """Refuses DeleteEndpoint with `refusals`, one after another, and then accepts it."""

    def __init__(self, *refusals: BaseException) -> None:
        self.refusals = list(refusals)
        self.calls: list[str] = []
        self.slept_s = 0.0
        self.said: list[str] = []

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "delete_endpoint" and self.refusals:
            raise self.refusals.pop(0)
        self.calls.append(operation)
        return {}

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def delete(self) -> None:
        self.delete_endpoint("e", self.said.append, self.sleep)


def test_an_endpoint_is_deleted_when_its_start_has_ended() -> None:
    account = Account(*[BUSY] * 20)
    account.delete()
    assert account.calls == ["delete_endpoint", "delete_endpoint_config"]
    waiting = "Endpoint e starts or updates. Waiting to delete it: {} of 60 min"
    assert (account.slept_s, account.said) == (100.0, [waiting.format(0), waiting.format(1)])


def test_an_endpoint_that_does_not_exist_is_deleted() -> None:
    account = Account(NotFound("DeleteEndpoint", "ValidationException", 'Could not find endpoint "arn".'))
    account.delete()
    assert (account.calls, account.said) == (["delete_endpoint_config"], [])


@pytest.mark.parametrize(("refusals", "slept_s"), [([DENIED], 0.0), ([BUSY] * 1000, 3600.0)], ids=["denied", "busy"])
def test_an_endpoint_that_is_left_behind_is_named_with_the_command_that_deletes_it(
    refusals: list[AwsRefused], slept_s: float
) -> None:
    account = Account(*refusals)
    with pytest.raises(AwsUnavailable) as error:
        account.delete()
    assert (str(error.value), account.slept_s) == (f"{refusals[0]}\n{LEFT}", slept_s)


def test_ctrl_c_ends_the_wait_and_names_the_endpoint() -> None:
    with pytest.raises(Interrupted) as interrupted:
        Account(BUSY, KeyboardInterrupt()).delete()
    assert str(interrupted.value) == f"Interrupted: the endpoint was not deleted.\n{LEFT}"
