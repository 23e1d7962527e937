"""The page of a rehearsal: what it keeps of the CDK CLI's output."""

from scripts.rehearsal.transcript import page


def test_a_line_that_the_cdk_cli_repeats_whole_or_cut_off_is_written_once() -> None:
    printed = [
        "## One",
        "$ cdk deploy OneStack",
        "bundling …",
        "error: it is at",
        "error: it is at an end",
        "error: it is at",
    ]
    *_, title, _, opened, command, first, second, closed = page(printed)
    assert (title, opened, command, closed) == ("## One", "```", "$ cdk deploy OneStack", "```")
    assert (first, second) == ("error: it is at", "error: it is at an end")


def test_the_next_command_may_say_the_same_again() -> None:
    printed = [
        "## One",
        "$ cdk deploy OneStack",
        "✅  OneStack",
        "✅  OneStack",
        "$ cdk deploy OneStack",
        "✅  OneStack",
    ]
    assert list(page(printed)).count("✅  OneStack") == 2
