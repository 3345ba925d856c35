"""CUDA C++ text: the source, the headers that it reaches, its tokens and its declarations."""
