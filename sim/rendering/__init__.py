"""Draw simulated scenes, with OpenGL or without."""
