"""Make robots from MJCF files."""
