"""Training and scoring translation models."""
