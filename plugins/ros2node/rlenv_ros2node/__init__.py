"""Offer a served robot to ROS 2 nodes: topics out, commands in under the lease and guard, and three services."""
