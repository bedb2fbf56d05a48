"""The MJCF files of our robots."""
