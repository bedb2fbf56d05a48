"""Trained policies that ship with the software, and cards that say how each was made and what it reached."""
