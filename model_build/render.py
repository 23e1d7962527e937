"""Results as text for people. Pure: the document that --json prints, laid out."""

from collections.abc import Mapping
from typing import Any


def text(command: str, document: Mapping[str, Any]) -> str:
    match command:
        case "plan":
            return _plan(document)
        case "verify":
            return _parity(document)
        case _:
            return "\n".join([_artifact(document), "", _parity(document["parity"])])


def _plan(plan: Mapping[str, Any]) -> str:
    settings = [f"  {key} = {value}" for key, value in plan["settings"].items()]
    files = [f"  {name}" for name in plan["archive_files"]]
    return "\n".join(
        [
            f"{plan['workload']} for {plan['target']} ({plan['runtime']}, {plan['precision']})",
            f"checkpoint  {plan['checkpoint']}",
            f"artifact    {plan['artifact']}",
            f"archive     {plan['archive']}",
            *files,
            "settings",
            *settings,
            "config.pbtxt",
            *(f"  {line}".rstrip() for line in plan["config_pbtxt"].splitlines()),
        ]
    )


def _artifact(artifact: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            f"{artifact['workload']} for {artifact['target']} ({artifact['runtime']}, {artifact['precision']})",
            f"archive               build/{artifact['workload']}/{artifact['target']}/{artifact['archive']}, "
            f"{artifact['archive_bytes'] / 1e6:.2f} MB",
            f"sha256                {artifact['archive_sha256']}",
        ]
    )


def _parity(parity: Mapping[str, Any]) -> str:
    original, compiled = parity["original"], parity["compiled"]
    return "\n".join(
        [
            f"identical sequences   {parity['identical_sequences']} of {parity['examples']}",
            f"logit difference      {parity['max_logit_difference']:.3g} at most, "
            f"{parity['mean_logit_difference']:.3g} on average",
            "                      original  compiled",
            f"exact match           {original['exact_match']:8.4f}  {compiled['exact_match']:8.4f}",
            f"left alone            {original['left_alone']:8.4f}  {compiled['left_alone']:8.4f}",
        ]
    )
