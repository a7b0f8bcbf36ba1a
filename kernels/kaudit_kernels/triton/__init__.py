"""Triton kernels. `launch` imports without Triton; the modules beside it, which hold the kernels, need it."""
