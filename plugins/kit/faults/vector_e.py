"""Make the batches of `fault_set_e`; each function takes the number of environments."""

from plugins.kit.faults.fault_set_e import batch_good, kiln_faults, lamp_faults  # noqa: F401
from plugins.kit.faults.fault_set_e.common import ENTRIES

globals().update({entry.id: entry.make for entry in ENTRIES.values() if entry.part == "vector"})
