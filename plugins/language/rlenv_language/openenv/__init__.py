"""Serve environments over OpenEnv's protocol, without its package."""
