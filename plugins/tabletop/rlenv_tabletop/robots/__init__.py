"""Descriptions of the SO-101 with things on its table."""
