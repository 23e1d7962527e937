"""What cdk-nag's AwsSolutions pack and CDK's own checks of templates find in an app and nobody has answered."""

import json
from pathlib import Path

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks


def nag_findings(app: App) -> list[str]:
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as failed:
        if not str(failed).startswith("ValidationFailed"):
            raise
    report = json.loads((Path(app.outdir) / "validation-report.json").read_text("utf-8"))
    return [found["ruleName"] for plugin in report["pluginReports"] for found in plugin["violations"]]
