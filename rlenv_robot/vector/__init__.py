"""Step many simulated environments together."""
