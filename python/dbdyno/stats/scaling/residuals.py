"""Whether neighbours on the ladder err alike: then one climb's intervals are too narrow."""

from __future__ import annotations

import numpy as np

from dbdyno.stats.scaling.curves import Floats
from dbdyno.stats.scaling.fit import EXACT, Fit

DRAWS = 1999
ALIKE = 0.05
"""p below which residuals are said to be autocorrelated."""


def durbin_watson(found: Fit, repeat: Floats, seed: int) -> tuple[float | None, float | None]:
    """About 2 without autocorrelation, towards 0 with (Durbin and Watson, Biometrika 38 (1951) 159), and the
    two-sided p that the residuals are independent. Neighbours are the points of one climb in the order of
    load.

    Its law under independence depends on the model: it is drawn from normal errors less what the model's
    tangent plane takes of them. None: the fit is exact, or there are too few points.
    """
    if found.degrees < 2 or found.rss <= len(found.n) * EXACT**2:
        return None, None
    order = np.lexsort((found.n, repeat))
    same = np.diff(repeat[order]) == 0
    if not same.any():
        return None, None
    free = [i for i, name in enumerate(found.model.names) if name not in found.at_bound]
    plane, _ = np.linalg.qr(found.slopes[:, free])
    errors = np.random.default_rng(seed).normal(size=(DRAWS, len(found.n)))
    errors -= (errors @ plane) @ plane.T
    own = _statistic((found.x - found.predicted)[None, order], same)[0]
    lower = float((1 + (_statistic(errors[:, order], same) <= own).sum()) / (DRAWS + 1))
    return float(own), min(1.0, 2 * min(lower, 1 - lower + 1 / (DRAWS + 1)))


def _statistic(r: Floats, same: Floats) -> Floats:
    return np.asarray((np.diff(r, axis=1)[:, same] ** 2).sum(1) / (r**2).sum(1))
