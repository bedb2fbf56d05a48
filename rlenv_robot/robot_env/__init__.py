"""A robot with a task as a world: single step, agents that take turns, verdicts, interventions."""
