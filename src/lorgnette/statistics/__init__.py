"""Statistics over texts and heads: ranks, samples by hash, BLEU with intervals."""
