"""CUDA C++ kernels, compiled by NVRTC through cuda-core: no compiler is needed on the user's machine."""
