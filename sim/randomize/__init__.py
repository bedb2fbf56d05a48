"""Draw the properties of a simulation's model for each episode."""
