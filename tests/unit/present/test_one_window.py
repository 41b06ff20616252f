"""Parts that are shown by window need no choice where there is one window."""

from tests.unit.report_observation import results
from tests.unit.shown import as_text

from dbdyno.present import report


def test_a_single_window_is_taken_for_the_cross_check() -> None:
    one, more = (as_text(report.details(results(busy), "cross_check"), 200) for busy in ((0.5,), (0.5, 0.6)))
    assert "choose one" not in one
    assert "choose one" in more
