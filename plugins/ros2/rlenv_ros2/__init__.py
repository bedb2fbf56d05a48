"""Speak to ROS 2 nodes over Zenoh or DDS without an installation of ROS 2, and drive robots that speak ROS 2."""
