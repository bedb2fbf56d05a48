"""Move a robot by a person's input device: the devices, and the teleoperated episodes."""
