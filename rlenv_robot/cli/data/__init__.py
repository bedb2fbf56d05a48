"""The verbs of `rlenv-robot data`."""
