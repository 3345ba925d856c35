"""A launch's arguments: Python values and tensors -> the bytes of each parameter."""
