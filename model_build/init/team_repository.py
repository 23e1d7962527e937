"""Makes the repository around the first workload: CDK app, pinned versions, CI, README.

The files are the templates below `new_repository/`, without their ending. An existing file stays.
"""

from importlib.metadata import version
from pathlib import Path

DISTRIBUTION = "transformers-in-production"
TEMPLATES = Path(__file__).with_name("new_repository")
PLACES = {"ci.yml": ".github/workflows/ci.yml", "gitignore": ".gitignore"}


def create(root: Path) -> list[str]:
    """Returns the names of the files that it wrote; none if the folder has a cdk.json."""
    if (root / "cdk.json").exists():
        return []
    from jinja2 import Environment, StrictUndefined  # Inf1's image, which imports this package, does not have it

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    facts = {"name": root.resolve().name, "version": version(DISTRIBUTION)}
    written = []
    for template in sorted(TEMPLATES.glob("*.jinja")):
        file = root / PLACES.get(template.stem, template.stem)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(environment.from_string(template.read_text("utf-8")).render(facts), "utf-8")
            written.append(file.relative_to(root).as_posix())
    return written
