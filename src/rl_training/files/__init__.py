"""Files on disk: atomic writes, tensor files, the run directory with its lock and record."""
