"""`sweep`: delete the endpoints, configurations and models that tests left behind."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from aws_api.expiry import TAG
from inference_recommender.measure.cleanup import Suspended, SweepAws, Swept, sweep
from inference_recommender.output import Commands, add_command, stdout_console, tell
from workloads import Interrupted, Unavailable

DESCRIPTION = f"""Everything that an experiment makes has the tag {TAG}: a time two hours
after its load should have ended. An experiment deletes what it made; where its process was killed, endpoints go on and
cost money. This command deletes what has expired, in this account and region: endpoints first, then configurations,
then models. It leaves alone whatever has no such tag, and whatever has not expired: an experiment under way is safe.

Run it daily, or after something went wrong; --dry-run shows what it would delete. It needs sagemaker:ListEndpoints,
ListEndpointConfigs, ListModels, ListTags, DeleteEndpoint, DeleteEndpointConfig and DeleteModel. A policy can limit the
deletions to what has the tag: Null aws:ResourceTag/{TAG} false.

Exit code 0: nothing that expired is left; 3: AWS refused one, or is not there; 130: interrupted, run it again."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "sweep", "delete what tests left behind and has expired", "sweep --dry-run", DESCRIPTION
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted; delete nothing")
    parser.add_argument("--json", action="store_true", help="print what became of each as one JSON document")
    parser.set_defaults(command=_sweep)


def _sweep(options: argparse.Namespace, stderr: Console) -> int:
    account = SweepAws(notify=lambda text: tell(stderr, text, "yellow"))
    try:
        swept = sweep(account, datetime.now(UTC), dry_run=options.dry_run)
    except KeyboardInterrupt:
        raise Interrupted("Interrupted: nothing was deleted.") from None
    except Suspended as suspended:
        _show(suspended.swept, as_json=options.json)
        left = _count(suspended.swept)["not tried"]
        if isinstance(suspended.cause, KeyboardInterrupt):
            raise Interrupted(f"Interrupted: {left} that expired are left. Run it again for them.") from None
        raise Unavailable(f"{suspended.cause}\n{left} that expired are left. Run it again for them.") from suspended
    _show(swept, as_json=options.json)
    if refused := [one for one in swept if one.outcome == "refused"]:
        reasons = "\n".join(f"{one.kind} {one.name}: {one.reason}" for one in refused)
        raise Unavailable(f"{reasons}\nThe others are done. Run it again for these, or delete them by hand.")
    return 0


def _show(swept: Sequence[Swept], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"swept": [one.model_dump(mode="json") for one in swept]}, indent=2))
        return
    console = stdout_console()
    if swept:
        table = Table(box=SIMPLE_HEAD)
        for head in ("kind", "name", "expires, UTC", "outcome"):
            table.add_column(head, overflow="fold")
        for one in swept:
            table.add_row(one.kind, one.name, f"{one.expires_at.astimezone(UTC):%Y-%m-%d %H:%M}", one.outcome)
        console.print(table)
    told = ", ".join(f"{count} {outcome}" for outcome, count in _count(swept).items())
    tell(console, f"{told}." if told else f"Nothing has the tag {TAG}.")


def _count(swept: Sequence[Swept]) -> Counter[str]:
    return Counter(one.outcome for one in swept)
