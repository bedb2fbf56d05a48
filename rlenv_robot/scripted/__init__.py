"""Scripted policies that prove that a task can be solved and give demonstrations."""
