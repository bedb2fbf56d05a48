"""Resets of a real robot: the confirmation by a person or a machine, and the record of the reset."""
