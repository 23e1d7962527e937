"""A report as `report.html`: one self-contained page. Pure; the same input gives the same bytes."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from inference_recommender.report.document import Plot, Report, shown

HERE = Path(__file__).parent


def page(report: Report, plots: Mapping[str, Plot] | None = None) -> str:
    """Returns the page of a report with its plots by title."""
    return render("report.html", report=report, plots=plots or {})


def render(template: str, **values: Any) -> str:
    """Fills a template, which extends `base.html`. Missing values raise, and text is escaped."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shown": shown, "file_name": _file_name, "prose": _prose}
    return environment.get_template(template).render(values) + "\n"


def _prose(text: str) -> Markup:
    """Returns text with its `code` as elements."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")
