"""What surrounds training: run directories, progress, evaluation, videos and reports."""
