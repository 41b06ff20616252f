"""The results of a run: raw cells, accounts of time, claims, comparisons."""
