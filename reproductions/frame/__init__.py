"""What all reproductions share: cells, claims, pages."""
