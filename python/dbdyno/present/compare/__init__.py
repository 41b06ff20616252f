"""Comparisons of variants, runs and machines, and a figure over runs, as documents."""
