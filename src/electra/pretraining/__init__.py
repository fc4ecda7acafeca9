"""Pre-training: config, parts, start and end of a run."""
