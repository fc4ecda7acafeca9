"""The networks: torch and configs only, no I/O and no objective."""
