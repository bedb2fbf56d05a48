"""Devices by which a person moves a robot, and the episodes in which they do."""
