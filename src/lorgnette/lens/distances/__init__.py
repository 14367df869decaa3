"""The lens `distances`."""
