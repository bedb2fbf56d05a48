"""Declare the verbs of the zoo, which are imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["card", "zoo"]

zoo = Verb("rlenv_zoo.cli", "list trained policies that ship with installed packages", group="policy")
card = Verb(
    "rlenv_zoo.cli:add_card", "measure a policy, and write the card with which a package ships it", group="policy"
)
