"""The factories of the environments of set C, which take no argument."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fault_set_c.registry import factories

globals().update(factories("environment"))
