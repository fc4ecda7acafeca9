"""The training loop, optimizer, schedule, checkpoints, tracking and health checks."""
