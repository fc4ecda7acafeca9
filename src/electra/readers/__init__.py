"""Readers of text files: one file per format, registered by the endings of file names."""
