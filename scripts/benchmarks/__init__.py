"""The parts of scripts/benchmark.py."""

import sys
from pathlib import Path

# For modules beside this package, and for the S3 server that the tests start, too.
sys.path.extend(str(folder) for folder in Path(__file__).resolve().parents[1:3])
