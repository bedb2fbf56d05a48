"""Use a served robot as a local `Robot`."""
