"""Exchange environments and data with learning libraries, FMUs, numeric tables and other languages."""
