"""Measure poses from markers, render with Filament, serve a virtual camera, and view an environment in a window."""
