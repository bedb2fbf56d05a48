"""Simulated robots that this software ships, one file each."""
