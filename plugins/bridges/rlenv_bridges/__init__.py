"""Exchange environments and data with d3rlpy, FMUs and tables of numbers."""
