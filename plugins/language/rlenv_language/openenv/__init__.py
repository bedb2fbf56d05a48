"""Serve environments on the wire of OpenEnv, without its package."""
