"""The loop and what surrounds it: optimiser, schedule, checkpoints, tracking, health."""
