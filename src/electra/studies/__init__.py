"""A study: several arms at equal compute, and what came of them."""
