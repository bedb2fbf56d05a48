"""Drive Unitree's Go2 and G1 over DDS, and run a virtual Go2."""
