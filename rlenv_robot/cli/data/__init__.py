"""The verbs below `rlenv-robot data`, one module each."""
