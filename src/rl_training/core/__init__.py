"""Building blocks every algorithm shares."""
