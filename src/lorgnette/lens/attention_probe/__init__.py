"""The lens `attention-probe`."""
