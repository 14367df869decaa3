"""The lens `rollout`."""
