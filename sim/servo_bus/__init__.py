"""A servo bus without servos: drivers of other makers take it for a real one."""
