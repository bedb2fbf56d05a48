"""Declare the verb of the policy-servers plug-in, which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["serve"]

serve = Verb(
    "rlenv_policy_servers.cli",
    "serve a policy to clients of openpi, GR00T or LeRobot",
    group="policy",
    example="reach.npz --task so101-reach --as openpi",
)
