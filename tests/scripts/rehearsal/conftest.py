"""The rehearsal's account, one for all tests that ask it."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from local_aws.process.local_account import LocalAccount


def client(account: LocalAccount, service: str) -> Any:
    return boto3.client(service, **account.client_arguments())  # type: ignore[call-overload]


@pytest.fixture(scope="session")
def rehearsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAccount]:
    with LocalAccount.start(
        state=tmp_path_factory.mktemp("rehearsing"), pace="quick", program="scripts.rehearsal.account"
    ) as running:
        yield running
