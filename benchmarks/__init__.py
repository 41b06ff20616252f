"""Benchmarks of speed, as ratios: each runs paired with a peer, alternating, and prints the range.

``python -m benchmarks [NAME ...] [--pairs N]``. Nothing is asserted, since machines differ and are noisy.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "entry_points"))  # engines that only tests use
