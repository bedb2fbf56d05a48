"""The built-in tasks, one module each."""
