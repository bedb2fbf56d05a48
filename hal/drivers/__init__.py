"""Drivers of real robots, and the servo buses that they talk over."""
