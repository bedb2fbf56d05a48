"""Make the batches of `fault_set_f`; each function takes the number of environments."""

from plugins.kit.faults.fault_set_f import batch_faults, riddle_faults  # noqa: F401
from plugins.kit.faults.fault_set_f.common import REGISTER

globals().update(REGISTER.factories("vector"))
