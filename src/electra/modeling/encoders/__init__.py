"""The encoders: one file each."""
