"""Publish and follow the state, the images and the clock of a served robot."""
