"""The command-line verbs of the arms plug-in."""
