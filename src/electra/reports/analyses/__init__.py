"""One presenter for each analysis."""
