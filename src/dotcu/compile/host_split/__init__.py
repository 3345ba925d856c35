"""Files with host code: which declarations a device compiler can take, with lines and columns kept."""
