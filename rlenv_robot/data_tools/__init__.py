"""What the verbs below ``rlenv-robot data`` share."""
