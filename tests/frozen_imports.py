"""Imported last by the server of `processes`: a collection in a forked process goes through its own objects alone."""

import gc

gc.collect()
gc.freeze()
