"""Reads the Dockerfiles of `containers/`."""

import re


def copied(dockerfile: str) -> dict[str, str]:
    """Returns what COPY puts below /opt/program/containers: each source with its name there."""
    pairs = re.findall(r"^COPY (.+) /opt/program/containers/(\S*)$", dockerfile, re.MULTILINE)
    return {source: name or source for sources, name in pairs for source in sources.split()}
