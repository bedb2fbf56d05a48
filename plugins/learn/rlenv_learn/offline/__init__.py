"""Learn from recorded data with rewards alone, by the algorithms of d3rlpy."""
