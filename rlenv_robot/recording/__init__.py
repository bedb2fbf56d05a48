"""Record environments and controllers."""
