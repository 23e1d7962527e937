"""The keys that the account accepts: its owner's, new at each start, and those that it issued itself.

moto's STS issues a key and a token for an assumed role, its IAM a key for a user. Both are random.
"""

import hmac
import secrets
import string
from dataclasses import dataclass, field
from typing import Any

from moto.core.utils import utcnow
from moto.iam.models import iam_backends
from moto.sts.models import AssumedRole, sts_backends

_ALPHABET = string.ascii_uppercase + string.digits
# moto tells accounts apart by keys of exactly 20 of these characters. The prefix shows that it is no key of AWS.
_PREFIX, _LENGTH = "LOCAL", 20


def _access_key_id() -> str:
    return _PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH - len(_PREFIX)))


@dataclass(frozen=True, slots=True)
class AccountKeys:
    access_key_id: str = field(default_factory=_access_key_id)
    secret_access_key: str = field(default_factory=lambda: secrets.token_urlsafe(30), repr=False)

    def secret_of(self, access_key_id: str, token: str | None) -> str | None:
        """Returns the secret of a key that may call the account, or None. `token` is a session's."""
        if hmac.compare_digest(access_key_id.encode(), self.access_key_id.encode()):
            return self.secret_access_key
        session = session_of(access_key_id, token or "")
        return str(session.secret_access_key) if session else _secret_of_user(access_key_id)


def session_of(access_key_id: str, token: str) -> AssumedRole | None:
    """Returns the role's session to which a key belongs, or None for other keys and expired sessions."""
    for backend in _backends(sts_backends):
        role: AssumedRole | None = backend.get_assumed_role_from_access_key(access_key_id)
        if role and role.expiration > utcnow() and hmac.compare_digest(role.session_token.encode(), token.encode()):
            return role
    return None


def _secret_of_user(access_key_id: str) -> str | None:
    for backend in _backends(iam_backends):
        key = backend.access_keys.get(access_key_id)
        # A key without a user is a session's, which needs its token.
        if key and key.user_name and key.status == "Active":
            return str(key.secret_access_key)
    return None


def _backends(by_account: Any) -> list[Any]:
    return [backend for account in list(by_account.values()) for backend in list(account.values())]
