"""Fast inner loops, each beside its plain version."""
