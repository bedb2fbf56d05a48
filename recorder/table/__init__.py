"""Packed rows with an index of episodes, and draws from them for training."""
