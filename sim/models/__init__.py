"""MJCF files, and the robots made of them."""
