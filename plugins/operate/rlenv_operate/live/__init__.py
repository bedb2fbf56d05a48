"""Show a served robot in viewers of other projects."""
