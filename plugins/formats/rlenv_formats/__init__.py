"""Read and write other projects' recorded data, and data at an address."""
