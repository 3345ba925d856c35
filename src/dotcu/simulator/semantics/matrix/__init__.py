"""Instructions in which a warp holds matrices together: mma, ldmatrix, stmatrix, movmatrix, wmma."""
