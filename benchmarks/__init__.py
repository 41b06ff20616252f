"""Speed, as ratios: each benchmark pairs and alternates with its peer in one run and prints the spread.

``python -m benchmarks [NAME ...] [--pairs N]``. Nothing here asserts: machines differ and are noisy.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "entry_points"))  # of engines that only tests use
