"""One file a verb: a frozen config, and `run(config)`, which reads as the architecture."""
