"""Studies: many runs compared, swept, tuned and reported together."""
