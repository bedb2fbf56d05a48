"""Learn on a robot while it moves: an actor steps the robot, and a learner follows the actor's log."""
