"""Write a run's log."""
