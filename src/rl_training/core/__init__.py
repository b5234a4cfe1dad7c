"""Building blocks of every other layer, without torch."""
