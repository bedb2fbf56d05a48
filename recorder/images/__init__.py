"""Decode the images that belong to rows of a table."""
