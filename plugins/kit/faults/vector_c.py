"""The factories of the batches of set C, which take the number of environments."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fault_set_c.registry import factories

globals().update(factories("vector"))
