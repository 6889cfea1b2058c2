"""The kernels of Weir's own decoder: everything that it computes except matrix multiplications.

`protocol` says what each kernel computes, and `choice` picks an implementation for a device. `torch_kernels`
runs on every device and is the reference; `cpu` holds kernels in C, `gpu` holds kernels in Triton.
"""
