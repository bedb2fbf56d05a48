"""The command-line verbs of the formats plug-in."""
