"""Imitation of demonstrations: their recording, ACT, and diffusion policies."""
