"""Make the source data of `fault_set_d`; each function takes no argument."""

from plugins.kit.faults.fault_set_d import sources, sources_many, sources_small  # noqa: F401
from plugins.kit.faults.fault_set_d.common import ENTRIES

globals().update({entry.id: entry.make for entry in ENTRIES.values() if entry.part == "source"})
