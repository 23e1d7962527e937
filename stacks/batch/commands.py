"""The commands of a batch's steps, for a shell that has INPUT, OUTPUT and DAY in its environment.

A command's words cannot be computed in a state machine's JSONPath, an environment variable can: so the shell puts them
in.
"""


def shard_command(model: str, shard: str) -> str:
    """Bad rows are the account's to judge: a shard knows only its own."""
    return (
        f'exec python3 -m containers.batch --model {model} --input "$INPUT/$DAY" --output "$OUTPUT/$DAY" '
        f'--shard "{shard}" --summary "$OUTPUT/runs/$DAY/" --max-bad-share 1'
    )


def account_command(max_bad_share: float) -> str:
    return (
        'exec python3 -m containers.batch.account --input "$INPUT/$DAY" --output "$OUTPUT/$DAY" '
        f'--summaries "$OUTPUT/runs/$DAY" --max-bad-share {max_bad_share}'
    )
