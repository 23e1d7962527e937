"""Renders the documents of --json as text. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def text(command: str, document: Mapping[str, Any]) -> str:
    match command:
        case "plan":
            return _plan(document)
        case "verify" if "outputs" in document:
            return f"Recorded: {document['outputs']}. Compare it with verify --outputs."
        case "verify":
            return _engines(document) if "engines" in document else _parity(document)
        case _:
            return "\n".join([_artifact(document), "", _parity(document["parity"])])


def table(artifacts: Sequence[Mapping[str, Any]]) -> str:
    """Returns one line for each build, with its figures; metrics as original → compiled."""
    head = ("workload", "target", "runtime", "precision", "MB", "identical", "largest diff.", "metrics")
    lines = [head, *map(_line, artifacts)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines
    )


def _line(artifact: Mapping[str, Any]) -> tuple[str, ...]:
    parity = artifact["parity"]
    named = (artifact["workload"], artifact["variant"], artifact["runtime"], artifact["precision"])
    size = f"{artifact['archive_bytes'] / 1e6:.2f}"
    if parity is None:
        return (*named, size, "", "", "not compared: this machine cannot run it")
    metrics = (f"{name} {value:.4f} → {parity['compiled'][name]:.4f}" for name, value in parity["original"].items())
    identical = f"{parity['identical_answers']}/{parity['examples']}"
    return (*named, size, identical, f"{parity['max_logit_difference']:.3g}", ", ".join(metrics))


def _plan(plan: Mapping[str, Any]) -> str:
    configs = (
        line
        for name, config in plan["configuration"].items()
        for line in (name, *(f"  {line}".rstrip() for line in config.splitlines()))
    )
    return "\n".join(
        [
            f"{plan['workload']} for {plan['variant']} ({plan['runtime']}, {plan['precision']})",
            f"checkpoint  {plan['checkpoint']}",
            f"artifact    {plan['artifact']}",
            "compiler",
            *(f"  {line}" for step in plan["compiler"] for line in step.splitlines()),
            f"archive     {plan['archive']}",
            *(f"  {name}" for name in plan["archive_files"]),
            "environment",
            *(f"  {key}={value}" for key, value in plan["environment"].items()),
            *configs,
        ]
    )


def _artifact(artifact: Mapping[str, Any]) -> str:
    return (
        f"{artifact['workload']} for {artifact['variant']} ({artifact['runtime']}, {artifact['precision']})\n"
        f"archive               build/{artifact['workload']}/{artifact['variant']}/{artifact['archive']}, "
        f"{artifact['archive_bytes'] / 1e6:.2f} MB\n"
        f"sha256                {artifact['archive_sha256']}"
    )


def runner_up(artifact: Mapping[str, Any]) -> str:
    """Returns how long the other CPU runtime takes; if it is faster, the lines of workload.toml that choose it."""
    own, other = (f"{each['runtime']} {each['precision']}" for each in (artifact, artifact["runner_up"]))
    name, ratio = f"{artifact['workload']} for {artifact['variant']}", artifact["runner_up"]["times_as_long"]
    compared = f"{name}: {other} takes {ratio:.2f} times as long as {own} ({artifact['runner_up']['cpu']})."
    if ratio >= 1:
        return compared
    lines = (f'  {key} = "{artifact["runner_up"][key]}"' for key in ("runtime", "precision"))
    return "\n".join([f"Warning: {compared} To use it, set in [targets.{artifact['target']}]:", *lines])


def _engines(document: Mapping[str, Any]) -> str:
    """Returns the result of each engine, and why TensorRT itself accepts the refused ones."""
    head = f"{document['workload']} for {document['variant']} ({document['precision']}), {document['builder']}"
    lines, evidence = [head], []
    for engine in document["engines"]:
        named = f"{engine['graph']}.{engine['compute_capability']}.plan"
        if engine["plan_bytes"] is not None:
            lines.append(f"{named:<20}  built, {engine['plan_bytes'] / 1e6:.2f} MB")
        else:
            lines += [f"{named:<20}  refused only by this builder", f"  {engine['refusal']}"]
            evidence.append(f"Not checked, therefore: {engine['evidence']}.")
    return "\n".join([*lines, *dict.fromkeys(evidence)])


def _parity(parity: Mapping[str, Any] | None) -> str:
    if not parity:
        return "not compared: this machine cannot run the compiled model"
    original, compiled, intervals = parity["original"], parity["compiled"], parity.get("intervals", {})
    return "\n".join(
        [
            f"identical answers     {parity['identical_answers']} of {parity['examples']}",
            f"{f'{compared(original)} difference':<20}  {parity['max_logit_difference']:.3g} at most, "
            f"{parity['mean_logit_difference']:.3g} on average",
            *_guided(parity.get("guided")),
            "                      original  compiled" + ("  95 % interval" if intervals else ""),
            *(
                f"{name.replace('_', ' '):<20}  {value:8.4f}  {compiled[name]:8.4f}"
                + ("  {:.4f} to {:.4f}".format(*intervals[name]) if intervals.get(name) else "")
                for name, value in original.items()
            ),
        ]
    )


def _guided(guided: Mapping[str, Any] | None) -> list[str]:
    if not guided:
        return []
    differing = guided["differing_answers"]
    return [
        f"guided decoding       {guided['tokens_per_pass']:.2f} tokens a pass, {differing} answers differ from greedy"
    ]


def compared(metrics: Iterable[str]) -> str:
    """Returns the noun of the compared numbers, by the metrics of the task: vector or logit."""
    return "vector" if any(name.startswith("cosine_") for name in metrics) else "logit"
