"""Curves of throughput of a closed system as a function of its load, each with its citation.

``n``: loads (of parallel workers of any kind), shape (points,), above 0. ``p``: parameters, shape (...,
parameters). Throughput: units of work per second, shape (..., points). The first parameter is always
``rate``: throughput per unit of load without any loss, 1/s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.special import beta_below, gamma_above, log_gamma, logistic

Floats = NDArray[np.float64]
NEWTON_STEPS = 30
"""Largest number of steps; about six are needed."""


def parts(p: Floats) -> Any:
    """Returns one array per parameter, shaped to be combined with loads along the last axis."""
    return (p[..., i, None] for i in range(p.shape[-1]))


def linear(n: Floats, p: Floats) -> Floats:
    """X = rate N."""
    (rate,) = parts(p)
    return np.asarray(rate * n)


def amdahl(n: Floats, p: Floats) -> Floats:
    """X = rate N / (1 + sigma (N - 1)): Amdahl, AFIPS Conference Proceedings 30 (1967) 483."""
    rate, sigma = parts(p)
    return np.asarray(rate * n / (1 + sigma * (n - 1)))


def usl(n: Floats, p: Floats) -> Floats:
    """X = rate N / (1 + sigma (N - 1) + kappa N (N - 1)): Gunther, Guerrilla Capacity Planning (2007),
    section 4.4, with the throughput of one as third parameter."""
    rate, sigma, kappa = parts(p)
    return np.asarray(rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1)))


def plateau(n: Floats, p: Floats) -> Floats:
    """X = rate min(N, servers): the asymptotic bounds of a closed system (Denning and Buzen, Computing
    Surveys 10 (1978) 225, bottleneck analysis)."""
    rate, servers = parts(p)
    return np.asarray(rate * np.minimum(n, servers))


def one_knee(n: Floats, p: Floats) -> Floats:
    """X = rate N up to ``knee``, then ``rate yield`` for each further one: continuous piecewise linear
    regression (Muggeo, Statistics in Medicine 22 (2003) 3055)."""
    rate, knee, after = parts(p)
    return np.asarray(rate * (np.minimum(n, knee) + after * np.maximum(n - knee, 0)))


def two_knees(n: Floats, p: Floats) -> Floats:
    """X as for one knee, and above ``knee2`` ``rate yield2`` for each further one: cores, then threads."""
    rate, knee, after, knee2, after2 = parts(p)
    knee2 = np.maximum(knee, knee2)
    middle = np.clip(n, knee, knee2) - knee
    return np.asarray(rate * (np.minimum(n, knee) + after * middle + after2 * np.maximum(n - knee2, 0)))


def queue(n: Floats, p: Floats) -> Floats:
    """M/M/c: the throughput at which N calls are on average at c servers, waiting or in service, each served
    at ``rate``.

    N = a + C(c, a) a / (c - a) with a = X / rate and C Erlang's delay formula (Kleinrock, Queueing Systems
    I (1975), section 3.5, and Little's law), solved for X. It is the plateau rounded by random arrivals; c
    need not be whole (Jagers and van Doorn, Operations Research Letters 5 (1986) 229).
    """
    rate, servers = parts(p)
    return np.asarray(rate * servers * _utilisation(*np.broadcast_arrays(n, servers)))


def calls_present(busy: Floats, servers: Floats) -> tuple[Floats, Floats]:
    """Returns the mean number of calls in M/M/c at the utilisation ``busy`` (0..1), and its derivative by
    ``busy``."""
    offered = busy * servers
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        log_loss = servers * np.log(offered) - offered - log_gamma(servers + 1)
        # Erlang's loss formula B(c, a) for real c: a^c e^-a / Gamma(c + 1, a).
        loss = np.exp(log_loss) / gamma_above(servers + 1, offered)
    # dB/da = B (c / a - 1 + B), times da/dbusy = c. Delay formula: C = B / (1 - busy (1 - B)).
    slope = servers * loss * (1 / busy - 1 + loss)
    below = 1 - busy * (1 - loss)
    delay = loss / below
    delay_slope = (slope * below - loss * (busy * slope - (1 - loss))) / below**2
    idle = 1 - busy
    return (
        offered + delay * busy / idle,
        servers + delay_slope * busy / idle + delay / idle**2,
    )


def _utilisation(n: Floats, servers: Floats) -> Floats:
    """Inverts ``calls_present`` by Newton's steps in the logarithm of busy / idle, with bisection as a
    safeguard."""
    shape = n.shape
    low = np.log(n / (servers + n)) - 1e-9  # if all calls wait: n <= busy (servers + 1 / idle)
    low = np.minimum(low, np.log(np.maximum(n / (1 + servers), 1e-300)))
    high = np.log(np.maximum(n, 1e-300)) + np.log1p(n)  # no call waits longer than with one server
    high = np.maximum(high, np.where(n < servers, np.log(n / np.maximum(servers - n, 1e-9)), high))
    z = np.where(
        n < 0.9 * servers,
        np.log(n / np.maximum(servers - n, 0.1 * n)),
        np.log(np.maximum(n - servers, 0) + 2),
    )
    z, low, high = (np.array(v).ravel() for v in (np.clip(z, low, high), low, high))
    n, servers = np.ravel(n), np.ravel(servers)
    live = np.arange(z.size)
    for _ in range(NEWTON_STEPS):
        at, load = z[live], n[live]
        busy = logistic(at)
        present, slope = calls_present(busy, servers[live])
        error = np.log(present / load)
        under, over = np.where(error < 0, at, low[live]), np.where(error > 0, at, high[live])
        new = at - error * present / (slope * busy * (1 - busy))
        new = np.where((new > under) & (new < over), new, (under + over) / 2)
        z[live], low[live], high[live] = new, under, over
        live = live[~(np.abs(new - at) <= 1e-8)]  # convergence is quadratic
        if not live.size:
            break
    return np.asarray(logistic(z)).reshape(shape)


def repairman(n: Floats, p: Floats) -> Floats:
    """M/M/c//N, the machine-repairman model: N clients think for Z and are served for S by one of c servers
    (Kleinrock, Queueing Systems I (1975), section 3.8; Allen, Probability, Statistics and Queueing Theory
    (1990)).

    ``p``: rate = 1 / (S + Z), servers c, think = Z / S. Throughput is the mean number of busy servers over
    S. With up to c clients present the states are binomial, above it Poisson in the number of thinking
    clients. Both sums are incomplete beta and gamma functions, which also extend N and c to real numbers.
    """
    rate, servers, think = parts(p)
    think = np.maximum(think, 1e-9)
    whole = np.floor(servers)
    waiting = np.maximum(n - whole, 1e-12)
    share, rest = 1 / (1 + think), think / (1 + think)
    thinkers = servers * think
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        served = beta_below(waiting, whole + 1, rest)
        log_queue = log_gamma(n + 1) - log_gamma(whole + 1) + whole * np.log(servers)
        log_queue = log_queue - n * np.log(thinkers) + thinkers + n * np.log(rest)
        queued = np.exp(np.minimum(log_queue, 600)) * gamma_above(waiting, thinkers)
        busy = (n * share * beta_below(waiting, whole, rest) + servers * queued) / (served + queued)
    busy = np.where(n <= whole, n * share, np.minimum(busy, np.minimum(n * share, servers)))
    return np.asarray(rate / share * busy)


def power(n: Floats, p: Floats) -> Floats:
    """X = rate N^exponent: each doubling adds the same share, and growth bends nowhere."""
    rate, exponent = parts(p)
    return np.asarray(rate * n**exponent)


def usl_by_peak(n: Floats, p: Floats) -> Floats:
    """The Universal Scalability Law in terms of its peak: throughput ``top``, ``sigma``, load ``peak``.
    The other two parameters are kappa = (1 - sigma) / peak^2 and rate, Gunther (2007), equation 4.33."""
    return usl(n, by_peak(p))


def by_peak(p: Floats) -> Floats:
    """Converts (top, sigma, peak) to (rate, sigma, kappa)."""
    top, sigma, peak = p[..., 0], p[..., 1], p[..., 2]
    kappa = (1 - sigma) / peak**2
    rate = top / peak * (1 + sigma * (peak - 1) + kappa * peak * (peak - 1))
    return np.stack([rate, sigma, kappa], axis=-1)


def repairman_by_knee(n: Floats, p: Floats) -> Floats:
    """The repairman's curve with ``knee`` = servers (1 + think), the intersection of its asymptotes, in
    place of the servers."""
    servers = np.maximum(p[..., 1] / (1 + p[..., 2]), 1.0)
    return repairman(n, np.stack([p[..., 0], servers, p[..., 2]], axis=-1))
