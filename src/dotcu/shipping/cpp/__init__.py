"""C++ from the Python declaration: operators whose bodies have plans, written for LibTorch's stable ABI."""
