"""The command-line verbs of the curate plug-in."""
