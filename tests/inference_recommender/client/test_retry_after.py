"""Retry-After headers, by RFC 9110 and malformed."""

from email.utils import formatdate

import pytest

from inference_recommender.client.servers import retry_after_s

NOW_S = 1_795_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        (formatdate(NOW_S + 90, usegmt=True), 90.0),
        (formatdate(NOW_S + 90), 90.0),
        (formatdate(NOW_S - 90, usegmt=True), 0.0),
        (None, None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Wed, 99 Nov 2026 07:28:00 GMT", None),
        ("9" * 5_000, None),
    ],
)
def test_seconds_and_dates_are_read(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW_S) == seconds
