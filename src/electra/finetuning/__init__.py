"""A fine-tuning: its config, its task, its seeds and its results."""
