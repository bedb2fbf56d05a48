"""Imitate demonstrations: record them, train ACT and diffusion policies, and estimate positions from images."""
