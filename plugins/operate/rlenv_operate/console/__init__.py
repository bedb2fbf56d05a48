"""The operator's console: a web page, served as one more client of the robot's server (docs/console.md)."""
