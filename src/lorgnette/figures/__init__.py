"""Charts, figures and sentences made from any result; knows nothing of lenses or models."""
