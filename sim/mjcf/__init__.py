"""MJCF files as robots."""
