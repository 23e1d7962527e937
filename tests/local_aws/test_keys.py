"""The account answers to the keys that it handed out, for as long as they hold, and to no key that everybody knows."""

from datetime import timedelta
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from local_aws.owner_only import AccountKeys


@pytest.fixture
def role() -> Any:
    arn = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/deploy"
    return sts_backends[DEFAULT_ACCOUNT_ID]["aws"].assume_role("us-east-1", "session", arn, "", 3600, "")


def test_every_account_has_a_key_of_its_own() -> None:
    one, other = AccountKeys(), AccountKeys()
    assert len(one.secret_access_key) == 40
    assert len(one.access_key_id) == 20
    assert one.secret_of(one.access_key_id, None) == one.secret_access_key
    assert one.secret_of(other.access_key_id, None) is None


def test_the_session_of_an_assumed_role_needs_its_token(role: Any) -> None:
    keys = AccountKeys()
    assert keys.secret_of(role.access_key_id, role.session_token) == role.secret_access_key
    assert keys.secret_of(role.access_key_id, None) is None
    assert keys.secret_of(role.access_key_id, role.session_token + "x") is None
    role.expiration -= timedelta(hours=2)
    assert keys.secret_of(role.access_key_id, role.session_token) is None


def test_a_users_key_holds_while_it_is_active() -> None:
    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    iam.create_user("us-east-1", "somebody")
    key = iam.create_access_key("somebody")
    try:
        assert AccountKeys().secret_of(key.access_key_id, None) == key.secret_access_key
        key.status = "Inactive"
        assert AccountKeys().secret_of(key.access_key_id, None) is None
    finally:
        iam.delete_access_key(key.access_key_id, "somebody")
        iam.delete_user("somebody")
