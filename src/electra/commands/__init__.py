"""The verbs of the command line: one file a verb, with its options, `run` and what it prints."""
