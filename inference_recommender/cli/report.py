"""`report`: renders a run, proof, search, simulation or experiment from its folder, without AWS."""

import argparse
from pathlib import Path

from rich.console import Console

from inference_recommender.cli.folder_report import read_report, write_index, write_page
from inference_recommender.output import Commands, add_command, stdout_console
from inference_recommender.report.document import as_json
from inference_recommender.report.markdown import markdown
from inference_recommender.report.text import show
from workloads import ROOT, UsageError

DESCRIPTION = """Renders a folder below runs/: a run, a proof, a capacity search, a search of a configuration (tune), a
simulation or an experiment. html writes report.html into the folder and prints its path. The other formats go to
stdout: text as the command printed it, markdown for the body of a pull request, json as a document. --all writes the
page of every folder and runs/index.html with links to them."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "report", "render the report of a run, without AWS", "report runs/NAME", DESCRIPTION)
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a folder below runs/")
    parser.add_argument(
        "--all",
        type=Path,
        nargs="?",
        const=ROOT / "runs",
        metavar="DIR",
        help="write an index of all runs; default: runs/",
    )
    parser.add_argument(
        "--format", choices=("html", "text", "markdown", "json"), default="html", help="default: html, a file"
    )
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace, stderr: Console) -> int:
    if (options.run is None) == (options.all is None):
        raise UsageError("report: name a folder below runs/, or give --all for an index of all of them.")
    if options.all is not None:
        if not options.all.is_dir():
            raise UsageError(f"--all: {options.all} does not exist. `python -m inference_recommender run` creates it.")
        print(write_index(options.all))
        return 0
    match options.format:
        case "html":
            print(write_page(options.run))
        case "text":
            show(read_report(options.run), stdout_console())
        case "markdown":
            print(markdown(read_report(options.run)), end="")
        case _:
            print(as_json(read_report(options.run)))
    return 0
