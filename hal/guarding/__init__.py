"""The parts of the guard: limits on commands, checks of readings, and the latched stop."""
