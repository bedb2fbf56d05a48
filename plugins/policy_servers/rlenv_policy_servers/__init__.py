"""Use policy servers that speak openpi, GR00T or LeRobot, and serve policies to their clients."""
