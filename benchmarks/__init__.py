"""Speed, as ratios: each benchmark pairs and alternates with its peer in one run and prints the spread.

``python -m benchmarks [NAME ...] [--pairs N]``. Nothing here asserts: machines differ and are noisy.
"""
