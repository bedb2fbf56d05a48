"""Declare the verbs of the learn plug-in, each of which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["imitate"]

imitate = Verb("rlenv_learn.cli.imitate", "learn a policy from any recorded set", heading="train and run policies")
