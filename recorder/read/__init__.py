"""Read a run's log, whole or torn."""
