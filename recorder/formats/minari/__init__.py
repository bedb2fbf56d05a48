"""Read and write Minari data sets."""
