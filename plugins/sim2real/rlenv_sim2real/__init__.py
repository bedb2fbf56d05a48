"""Measure and close the gap between a simulated arm and recordings of a real one."""
