"""Dependency trees: gold ones, those that attention induces, and how well they agree."""
