"""Code that lenses which ablate heads share: the means that replace heads, and passes with changed heads."""
