"""Read and write other projects' data sets, local or at an address."""
