"""Out of the run folder and into the formats that people use."""
