"""Asynchronous copies, and the mbarriers that track them."""
