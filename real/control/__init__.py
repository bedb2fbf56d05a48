"""The control loop of a served robot, and its parts."""
