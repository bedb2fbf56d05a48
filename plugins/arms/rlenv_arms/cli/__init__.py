"""The verbs of this plug-in."""
