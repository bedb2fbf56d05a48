"""Show the episodes of data sets on a page, and label and select them there."""
