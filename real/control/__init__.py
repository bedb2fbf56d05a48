"""The control loop of a served robot, and what it is made of."""
