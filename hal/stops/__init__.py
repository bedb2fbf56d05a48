"""The latched stop, and the file in which it outlives the process."""
