"""A pre-training run: its config, its parts, and how it starts and ends."""
