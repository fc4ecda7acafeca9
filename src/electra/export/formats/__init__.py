"""Formats of model folders, one file each: the fields of config.json and the names of tensors."""
