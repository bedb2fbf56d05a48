"""Make the subjects of ``vector.json``: planted faults, their correct originals, and unusual correct ones."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from fault_set_a import duels, good_batches, pump_faults  # noqa: E402, F401
from fault_set_a.registry import factories  # noqa: E402

globals().update(factories("vector"))
