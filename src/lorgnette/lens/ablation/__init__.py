"""What lenses share that take heads away: the means that replace them, and passes with changed heads."""
