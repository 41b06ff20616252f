"""Errors in a recipe are reported with file, line and nearest name, all at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dbdyno import conduct, observe
from dbdyno.conclude.catalogue import entry
from dbdyno.model.errors import RecipeError, UsageError
from dbdyno.plan.recipe_lines import read_toml

WRONG = """\
workload = "lia"
measure = "5x"
settle = "2 fortnights"
baseline = "c"
sessions = "9:1"
[params]
tabels = "own"
[variants.a]
limits = { quota = 100000.0 }
[variants.b]
limits = { period = "10ms" }
"""


def refusal(path: Path, **overrides: object) -> UsageError:
    request = conduct.Request(recipe=str(path), patch=conduct.Patch(overrides))
    with pytest.raises(UsageError) as e:
        conduct.planned(request, observe.host())
    return e.value


def lines(error: UsageError, path: Path) -> list[int]:
    return [int(n) for n in re.findall(re.escape(f"{path}:") + r"(\d+):", str(error))]


def test_every_wrong_value_is_named_with_its_line(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(WRONG)
    error = refusal(recipe)
    assert isinstance(error, RecipeError)
    assert lines(error, recipe) == [1, 2, 3, 4, 5, 7, 9, 11]
    assert "did you mean 'lio'" in str(error)
    assert "did you mean 'tables'" in str(error)


def test_an_option_that_is_wrong_is_not_blamed_on_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('workload = "lio"\nmeasure = "5s"\n')
    assert str(recipe) not in str(refusal(recipe, measure="1ms"))


def test_one_wrong_value_is_one_line_and_a_cure(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('workload = "lio"\n\nmeasure = "1ms"\n')
    error = refusal(recipe)
    assert (error.message.startswith(f"{recipe}:3: "), bool(error.cure)) == (True, True)


@pytest.mark.parametrize(
    ("written", "refuses"),
    [
        (r"C:\temp\bench.sql", True),
        (r"scripts\new\bench.sql", True),
        (r"C:\Users\me\bench.sql", True),  # no TOML at all: \U wants eight digits
        (r"data\demo.sql", True),  # nor is this: \d is no escape
        (r"select 1;\nselect 2.5;", False),
        (r"C:\\temp\\bench.sql", False),
    ],
)
def test_a_path_in_double_quotes_is_refused_with_its_line(
    tmp_path: Path, written: str, refuses: bool
) -> None:
    """As an escape \\t would be a tab and \\b a backspace, which a terminal swallows."""
    text = f'workload = "cpu"\n\nscript = "{written}"\n'
    if not refuses:
        assert read_toml(text)["script"]
        return
    recipe = tmp_path / "mine.toml"
    recipe.write_text(text)
    error = refusal(recipe)
    assert error.message.startswith(f"{recipe}:3: ") and error.message.isprintable()
    assert "single quotes" in (error.cure or "") and f"'{written}'" in (error.cure or "")
    assert read_toml(text.replace('"' + written + '"', f"'{written}'"))["script"] == written


def test_an_unknown_answer_is_named_with_its_line_and_the_nearest_claim(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('workload = "lio"\nanswer = ["peak", "cpu-per-requst"]\n')
    error = refusal(recipe)
    assert isinstance(error, RecipeError) and lines(error, recipe) == [2]
    assert "did you mean 'cpu-per-request'" in str(error)


def test_an_answer_may_be_the_claims_of_one_item(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('workload = "lio"\nanswer = ["errors-40001"]\n')
    plan, _ = conduct.planned(conduct.Request(recipe=str(recipe)), observe.host())
    assert plan.experiment.answer == ("errors-40001",)


def test_answers_of_shipped_recipes_are_claims() -> None:
    recipes = conduct.recipes()
    assert sum(bool(r.answer) for r in recipes.values()) > 10
    for recipe in recipes.values():
        for name in recipe.answer:
            assert entry(name).missing or name != recipe.answer[0]
