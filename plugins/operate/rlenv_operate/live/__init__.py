"""Show a served robot in the viewers of other projects."""
