"""Profiles and settings."""
