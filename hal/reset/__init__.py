"""Resets of a real robot: the confirmation of a person or a fixture, the way home, and the record of both."""
