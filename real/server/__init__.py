"""Serve any robot to one client that moves it and to any number that watch."""
