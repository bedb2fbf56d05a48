"""Delay, quantise and lose a simulation's commands and measurements."""
