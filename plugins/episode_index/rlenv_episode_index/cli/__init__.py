"""The command-line verb of the plug-in."""
