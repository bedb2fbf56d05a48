"""A served robot as a local `Robot`."""
