"""The lens `roles`."""
