"""Further tasks for an arm on a table, and scripts that solve them."""
