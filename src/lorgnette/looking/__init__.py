"""Running lenses over a corpus: batches, processes, resuming, progress, controls."""
