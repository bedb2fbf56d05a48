"""Adapt environments and recorded data to other projects' interfaces, importing each project on first use."""
