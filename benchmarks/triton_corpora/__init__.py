"""Public Triton kernels in the simulator: a module here for each library, and the command that runs them."""
