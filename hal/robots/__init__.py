"""Descriptions of the robots that this software ships, one file each."""
