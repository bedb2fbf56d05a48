"""Read ROS 2 bags."""
