"""The page of a rehearsal: what two rehearsals make differently is not in it."""

import pytest

from scripts.rehearsal.release.page import page, without_figures


def test_titles_become_sections_and_progress_is_left_out() -> None:
    lines = ["## One", "Build/Check: succeeded", "  npm warn old", "## Two", "  score 0.98"]
    made = "\n".join(page(lines))
    assert made.endswith("## One\n\n```\nBuild/Check: succeeded\n```\n\n## Two\n\n```\n  score …\n```")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  exact match 0.9875 of 800", "  exact match … of 800"),
        ("at 1,234 invocations/min, P99 12.5 ms", "at … invocations/min, P99 … ms"),
        ("the branch recommendations/spellcheck-0123456789ab", "the branch recommendations/spellcheck-…"),
        ("job spellcheck-release-20261122-233911 is done", "job spellcheck-release-… is done"),
        ("/a/b/build/release-rehearsal/work/build-12/inputs/Source/workloads/x.toml:3", "workloads/x.toml:3"),
        ("  P99 ms at equal load   12.7   134   +958.8%   worse", "  P99 ms at equal load … … +…% worse"),
        ("                original  compiled", "    original compiled"),
        ("│ p99 │ 3.2 │", " p99 …"),
    ],
)
def test_figures_and_names_of_the_moment_are_masked(line: str, shown: str) -> None:
    assert without_figures(line) == shown
