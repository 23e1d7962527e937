"""`python -m scripts.rehearsal.delete_retained FILE`: deletes buckets and logs that are not in FILE.

A template that retains them leaves them, with all their content, when its stack is destroyed, to be deleted by hand.
FILE is what `inventory --write` wrote.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import boto3

from workloads.program import exit_code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    before = json.loads(parser.parse_args().file.read_text("utf-8"))
    make: Any = boto3.resource
    for bucket in make("s3").buckets.all():
        if bucket.name not in before["s3 list_buckets"]:
            bucket.object_versions.delete()
            bucket.delete()
            print(f"deleted {bucket.name}, which its template retains")
    client: Any = boto3.client
    logs = client("logs")
    for page in logs.get_paginator("describe_log_groups").paginate():
        for name in (group["logGroupName"] for group in page["logGroups"]):
            if name not in before["logs describe_log_groups"]:
                logs.delete_log_group(logGroupName=name)
                print(f"deleted {name}, which its template retains")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
