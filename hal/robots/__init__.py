"""Descriptions of the robots that this software knows, one file each."""
