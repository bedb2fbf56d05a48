"""Cameras: settings, sources of images, the thread that keeps the newest, and the wrapper that adds them to a robot."""
