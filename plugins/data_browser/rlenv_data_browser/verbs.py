"""Declare the verb of the data browser, which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["browse"]

browse = Verb("rlenv_data_browser.cli", "see, filter, label and select episodes on a page", heading="look")
