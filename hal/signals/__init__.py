"""Who says that the scene is ready for the next episode, and how the last one went (clause B.6.2)."""
