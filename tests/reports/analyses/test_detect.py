"""The tables of error detection: only differences have a sign."""

from electra.reports.analyses.detect import _format


def test_only_differences_have_a_sign() -> None:
    value = {"value": 0.25, "interval": [0.125, 0.5]}
    assert _format(value).startswith("0.250") and _format(value, sign=True).startswith("+0.250")
    assert _format(None) == "–"
