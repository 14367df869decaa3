"""The GPU package: Triton kernels for statistics, norms, vectors and sampled pairs, and the recording of passes.

Nothing else names Triton or CUDA graphs. The modules of kernels import Triton: `lorgnette.kernels` is the door to them.
"""
