"""The command-line verbs of the Kaiwu plug-in."""
