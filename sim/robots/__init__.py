"""The simulated robots that ship, one file each."""
