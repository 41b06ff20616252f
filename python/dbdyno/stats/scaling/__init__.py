"""Throughput of a closed system as a function of its load: models, their choice, intervals and inversion.

Load is a positive number of parallel workers of any kind, throughput is per second.
"""
