"""Learn on a robot while it moves: an actor with the robot, and a learner beside it that follows the actor's log."""
