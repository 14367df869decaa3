"""Pure functions: tensors in, tensors out, each with its reference. One idea per file."""
