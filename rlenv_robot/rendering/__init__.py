"""Show states live and recorded episodes again."""
