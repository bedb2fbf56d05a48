"""Measure the delay from a person's input to the measured motion of a robot."""
