"""`prices`: what the committed catalogue lists, and how it is brought up to date."""

import argparse
from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.output import LOG_WIDTH, MISSING, Commands, add_command, tell, warn
from inference_recommender.sizing import prices
from inference_recommender.sizing.prices import Catalogue
from workloads import ROOT, SageMakerEndpointHosting, load_workload, workload_names
from workloads.files import from_here

NOTHING_FOUND = 1


def add(commands: Commands) -> None:
    parser = add_command(commands, "prices", "show the catalogue of prices, or fetch it anew", "prices show")
    verbs = parser.add_subparsers(required=True, metavar="show|refresh")
    show = verbs.add_parser("show", help="print the committed catalogue")
    show.add_argument("--json", action="store_true", help="print it as one JSON document")
    show.set_defaults(command=_show)
    refresh = verbs.add_parser("refresh", help="ask the Price List API and write prices.json, for review")
    refresh.add_argument("--region", action="append", metavar="R", help="repeatable; default: those in the catalogue")
    refresh.add_argument(
        "--instance-type",
        action="append",
        metavar="T",
        help="repeatable, ml.g5.xlarge is SageMaker's and g5.xlarge EC2's; default: those in the catalogue and in all "
        "workloads",
    )
    refresh.set_defaults(command=_refresh)


def _show(options: argparse.Namespace, stderr: Console) -> int:
    catalogue = Catalogue.from_json(prices.CATALOGUE_FILE)
    if options.json:
        print(catalogue.model_dump_json(indent=2))
        return 0
    table = Table("region", "instance type", box=SIMPLE_HEAD)
    table.add_column("USD/h", justify="right")
    table.add_column("collected")
    table.add_column("source")
    for region, listed in catalogue.regions.items():
        for name, price in listed.items():
            table.add_row(region, name, f"{price.usd_per_hour:g}", price.collected, price.source)
    for name, why in catalogue.unlisted.items():
        table.add_row(MISSING, name, MISSING, MISSING, why)
    Console(width=LOG_WIDTH).print(table)
    return 0


def _refresh(options: argparse.Namespace, stderr: Console) -> int:
    from inference_recommender.sizing.price_list import connected, fresh_prices  # boto3, which `show` does without

    catalogue = Catalogue.from_json(prices.CATALOGUE_FILE)
    regions = options.region or list(catalogue.regions)
    types = options.instance_type or sorted({*catalogue.instance_types, *catalogue.unlisted, *named_types()})
    fresh, unclear = fresh_prices(regions, types, connected(), datetime.now(UTC).date().isoformat())
    for sentence in unclear:
        warn(stderr, sentence)
    count = sum(len(listed) for listed in fresh.regions.values())
    if not count:
        return NOTHING_FOUND
    catalogue.joined_by(fresh).write_json(prices.CATALOGUE_FILE)
    tell(stderr, f"{count} prices written for review: {from_here(prices.CATALOGUE_FILE)}")
    return 0


def named_types() -> set[str]:
    """Returns every instance type that a workload names: its targets', its hosting's and its experiments'."""
    loaded = [load_workload(name).workload for name in workload_names(ROOT / "workloads")]
    targets = {name for each in loaded for target in each.targets.values() for name in target.instance_types}
    published = {name for each in loaded for table in each.published.values() for name in table.instance_types}
    fallbacks = {
        name
        for each in loaded
        if isinstance(each.hosting, SageMakerEndpointHosting)
        for name in each.hosting.fallback_instance_types
    }
    return targets | published | fallbacks
