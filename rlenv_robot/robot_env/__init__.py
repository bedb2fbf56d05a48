"""Combine a robot with a task to a world: steps, agents that take turns, verdicts, interventions."""
