"""Find episodes in many data sets by an index, and keep selections of them."""
