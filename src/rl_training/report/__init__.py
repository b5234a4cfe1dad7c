"""The HTML report of a run: charts, page and video."""
