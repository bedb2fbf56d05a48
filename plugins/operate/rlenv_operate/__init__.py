"""Operate a robot: the console's web page, live views, and teleoperation."""
