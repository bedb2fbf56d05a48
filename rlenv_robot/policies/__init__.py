"""Policies and their files."""
