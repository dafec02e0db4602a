"""Metrics of runs that were never trained: window noise, seeds, and what windows have in common."""

import numpy as np


def autocorrelated(random, shape, rho=0.0):
    """Normal values of variance 1, each correlated by `rho` with the one before it."""
    noise = random.normal(size=shape)
    for now in range(1, shape[-1]):
        noise[..., now] = rho * noise[..., now - 1] + np.sqrt(1 - rho**2) * noise[..., now]
    return noise


def simulated_runs(random, n_times, n_runs, n_windows, *, seed=0.0, rho=0.0):
    """Return [times, runs, windows]; `seed` is a run's lasting deviation, in units of the noise.

    The noise of a run in a window has the deviation 1.
    """
    noise = autocorrelated(random, (n_times, n_runs, n_windows), rho)
    return noise + seed * random.normal(size=(n_times, n_runs, 1))


def improved(random, ranks_by_window, gain, noise):
    """Return ranks that are better by a factor, which varies with the session."""

    def of_window(ranks):
        factors = 1 - gain + random.normal(0, noise, len(ranks))
        return np.rint(ranks * factors).astype(int).clip(1)

    return {window: of_window(ranks) for window, ranks in ranks_by_window.items()}
