"""A trained discriminator at work."""
