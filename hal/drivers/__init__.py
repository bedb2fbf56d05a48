"""Drivers of real robots, and the servo buses on which they communicate."""
