"""Published answers, to their printed digits."""

from __future__ import annotations

import pytest
from tests.unit.scaling_ladders import CISCO, RAYTRACER, SPECSDM91, SYSBENCH, Two, first, ladder

from dbdyno.conclude.scaling import predict, scale
from dbdyno.model.results.analyses import Estimate, Fitted, Ladder

TWO = ("amdahl", "usl")


def _usl(ladder: Ladder) -> Fitted:
    fit = scale(ladder, models=TWO).fit("usl")
    assert fit is not None
    return fit


def _by_name(fit: Fitted) -> dict[str, Estimate]:
    return {p.name: p for p in fit.parameters}


@pytest.mark.parametrize(
    ("data", "rows", "values", "errors", "peak"),
    [
        (SPECSDM91, 7, (89.9952, 0.0277284, 0.000104366), (14.2135, 0.00912181, 1.98767e-5), 96.5195),
        (CISCO, 32, (995.64879, 0.026715946, 0.00076909391), (28.6984, 0.00449384, 8.64553e-5), 35.57379),
        (RAYTRACER, 6, (20.856046, 0.024444045, 0.0016268092), (0.788507, 0.00839067, 0.000261400), 24.48825),
    ],
)
def test_parameters_standard_errors_and_peak(
    data: Two, rows: int, values: tuple[float, ...], errors: tuple[float, ...], peak: float
) -> None:
    """R stops a little before specsdm91's minimum: in extended precision kappa is 1.04365484e-4, its
    standard error 1.98752709e-5."""
    fit = _usl(first(data, rows))
    assert [p.value for p in fit.parameters] == pytest.approx(values, rel=6e-6)
    assert [p.std_err for p in fit.parameters] == pytest.approx(errors, rel=1e-4)
    assert fit.peak is not None
    assert fit.peak.value == pytest.approx(peak, rel=3e-6)
    assert fit.degrees == rows - 3


@pytest.mark.parametrize(
    ("data", "limits"),
    [
        (SPECSDM91, ((61.246, 144.546), (0.009485, 0.064103), (3.862e-5, 1.6118e-4))),
        (CISCO, ((939.718, 1055.670), (0.018022, 0.036135), (0.00058819, 0.00093698))),
    ],
)
def test_intervals_are_the_published_ones_of_profile_likelihood(
    data: Two, limits: tuple[tuple[float, float], ...]
) -> None:
    fit = _usl(ladder(*data))
    assert {p.method for p in fit.parameters} == {"profile likelihood"}
    for p, limit in zip(fit.parameters, limits, strict=True):
        assert (p.low, p.high) == pytest.approx(limit, rel=2e-4)


def test_walds_interval_follows_from_the_standard_error() -> None:
    sigma = _usl(ladder(*SPECSDM91)).parameters[1]
    assert sigma.std_err is not None
    t = 2.7764451  # Student's t, 0.975, 4 degrees of freedom
    assert sigma.value - t * sigma.std_err == pytest.approx(0.00240, abs=5e-6)
    assert sigma.value + t * sigma.std_err == pytest.approx(0.05305, abs=1e-5)


def test_residuals_of_one_ramp_are_correlated() -> None:
    fit = _usl(ladder(*CISCO))
    assert fit.durbin_watson == pytest.approx(0.277, abs=5e-4)
    assert fit.autocorrelation_p is not None
    assert fit.autocorrelation_p < 0.01
    assert any("too narrow" in note for note in fit.notes)


def test_before_the_bend_two_laws_fit_alike() -> None:
    whole, begun = scale(ladder(*CISCO), models=TWO), scale(first(CISCO, 10), models=TWO)
    aic = {(s, f.model): f.aic for s, scaling in (("all", whole), ("ten", begun)) for f in scaling.fits}
    assert aic["all", "usl"] == pytest.approx(337.947, abs=1e-3)
    assert aic["all", "amdahl"] == pytest.approx(371.885, abs=1e-3)
    assert aic["ten", "usl"] == pytest.approx(75.121, abs=1e-3)
    assert aic["ten", "amdahl"] == pytest.approx(74.102, abs=1e-3)
    assert any("USL describes the loads no better than Amdahl's law" in refusal for refusal in begun.refused)
    assert not any("below the bend" in refusal for refusal in whole.refused)
    usl = begun.fit("usl")
    assert usl is not None
    assert usl.peak is None
    assert any("not claimed" in note for note in usl.notes)


def test_a_parameter_at_its_bound_has_a_note() -> None:
    fit = _usl(ladder(*RAYTRACER))
    kappa = _by_name(fit)["kappa"]
    assert [p.value for p in fit.parameters[:2]] == pytest.approx((21.848843, 0.057770781), rel=1e-6)
    assert (kappa.value, kappa.low, kappa.std_err) == (0, 0, None)
    assert kappa.high is not None
    assert "at its bound" in kappa.note
    assert "Amdahl" in kappa.note
    assert fit.peak is None


def test_a_loop_on_the_cpu_is_a_plateau() -> None:
    scaling = scale(ladder(*SYSBENCH))
    assert scaling.best is not None
    assert scaling.best.model == "plateau"
    assert scaling.best.knees[0].value == pytest.approx(27343 / 8290.4, rel=2e-3)
    assert scaling.best.peak is None


def test_far_beyond_the_ladder_a_forecast_warns() -> None:
    begun = scale(first(CISCO, 10), models=TWO)
    assert predict(begun, 5, "usl").note == ""
    assert "beyond the measured range" in predict(begun, 15, "usl").note
    assert predict(begun, 32, "usl").note.startswith("Warning")
    forecast = predict(begun, 10, "usl")
    assert forecast.low is not None
    assert forecast.high is not None
    assert forecast.low < 7867.61 < forecast.high
