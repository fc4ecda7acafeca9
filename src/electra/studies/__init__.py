"""Studies: several arms that are trained at equal compute and compared."""
