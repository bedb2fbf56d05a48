"""Show the state of a world, or a recorded episode, as images."""
