"""The operator's console: a web page, served by a client of the robot's server (docs/console.md)."""
