"""Read and write LeRobot data sets."""
