"""Drive and read served robots in LeRobot's numbers, without importing LeRobot."""
