"""Make the source data of `fault_set_f`; the functions take no argument."""

from plugins.kit.faults.fault_set_f import crossing_faults, lesson_faults  # noqa: F401
from plugins.kit.faults.fault_set_f.common import REGISTER

globals().update(REGISTER.factories("source"))
