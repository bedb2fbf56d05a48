"""Imitation of demonstrations: their recording, ACT, diffusion policies, and positions from images."""
