"""An execution of which the start-up of its shell left nothing is shorter than that, and not of no length."""

from dbdyno.conclude.commands import commands as concluded
from dbdyno.present.commands import commands as shown


def test_a_minimum_below_the_shells_start_up_is_a_bound() -> None:
    row = {"min_ns": 0, "shell_ns": 1.2e6}
    assert (shown._shortest(row).text, shown._shortest(row).value) == ("< 1.20 ms", None)
    assert concluded._least(row) == "less than 1.20 ms"


def test_any_other_minimum_is_no_bound() -> None:
    for row in ({"min_ns": 3e6, "shell_ns": 1.2e6}, {"min_ns": 3e6, "shell_ns": 0}):
        assert shown._shortest(row).text == concluded._least(row) == "3.00 ms"
