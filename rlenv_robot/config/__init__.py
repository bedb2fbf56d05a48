"""Profiles, their sections, and tables of plug-ins."""
