"""Readers of text files, one file per format. A reader is found by the endings that its class names.

To add a format, add a file here with a subclass of `Reader` (base.py says how); nothing else needs to be edited.
"""
