"""What lenses share that ablate heads: the means that replace them, and passes with changed heads."""
