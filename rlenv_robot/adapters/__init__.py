"""Adapt environments and recorded data to other projects' interfaces; each project is imported where it is used."""
