"""Draw a simulation's model anew for each episode."""
