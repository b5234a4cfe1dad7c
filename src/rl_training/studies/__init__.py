"""Studies: many runs from one file, compared, swept or tuned."""
