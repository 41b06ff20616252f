"""Throughput of a closed system over its load: models fitted to points, chosen, with intervals, turned round.

Load is a number above 0 of whatever works side by side, throughput is per second. Loads scipy.
"""
