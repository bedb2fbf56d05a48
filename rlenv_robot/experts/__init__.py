"""Scripted policies: they prove that a task can be solved, and give demonstrations to learn from."""
