"""The command-line verbs of the bridges plug-in."""
