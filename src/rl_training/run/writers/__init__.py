"""Writers of a run's metric rows: metrics.jsonl always, others as the config names them."""
