"""Operate a robot: the console's page, live views, teleoperation."""
