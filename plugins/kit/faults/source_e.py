"""Make the source data of `fault_set_e`; each function takes no argument."""

from plugins.kit.faults.fault_set_e import dive_faults, dive_table_faults, source_good, trade_faults  # noqa: F401
from plugins.kit.faults.fault_set_e.common import ENTRIES

globals().update({entry.id: entry.make for entry in ENTRIES.values() if entry.part == "source"})
