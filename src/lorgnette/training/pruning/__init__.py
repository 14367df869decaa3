"""Removing heads: ranking, removal, scores, speed, export."""
