"""Make the environments of `fault_set_f`; the functions take no argument."""

from plugins.kit.faults.fault_set_f import auction_faults, cistern_faults, environment_good  # noqa: F401
from plugins.kit.faults.fault_set_f.common import REGISTER

globals().update(REGISTER.factories("environment"))
