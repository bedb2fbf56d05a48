"""Sessions with servers of openpi, GR00T and LeRobot."""
