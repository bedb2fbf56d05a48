"""Many simulated environments that step together."""
