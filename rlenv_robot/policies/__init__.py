"""Policies, and the files that store them."""
