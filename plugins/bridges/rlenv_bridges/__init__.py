"""Exchange environments and data with libraries of learning, FMUs, tables of numbers and other languages."""
