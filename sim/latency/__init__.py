"""Delays, losses and resolution of a simulated robot."""

from sim.latency.delays import LONGEST_S, DelayModel

__all__ = ["LONGEST_S", "DelayModel"]
