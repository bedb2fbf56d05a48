"""Declare the verbs of this plug-in, which are imported on first use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["bench", "certify", "check", "new", "protocol"]

check = Verb(
    "rlenv_kit.cli.check", "test an environment against its contract", example="so101-reach", heading="build and check"
)
protocol = Verb(
    "rlenv_kit.cli.check:add_protocol",
    "list the inputs and outputs of an environment or a robot",
    example="so101-reach --out so101-reach.md",
    heading="build and check",
)
certify = Verb(
    "rlenv_kit.cli.certify",
    "measure how a served robot stops, as a signed certificate",
    group="robot",
    heading="judge and protect",
)
bench = Verb(
    "rlenv_kit.cli.bench",
    "try an arm step by step with its owner, as a signed report",
    group="robot",
    heading="judge and protect",
)
new = Verb("rlenv_kit.cli.new", "write a robot, a task, a driver or a package to begin with", group="dev")
