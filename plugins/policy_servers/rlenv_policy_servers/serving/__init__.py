"""Serve policies to clients of openpi, GR00T and LeRobot."""
