"""Verbs of this plug-in."""
