"""Worlds without a robot, to show that the contract is not about robots only (R7)."""
