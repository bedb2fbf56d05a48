"""Serve any robot to one client that moves it, and to any number of clients that watch."""
