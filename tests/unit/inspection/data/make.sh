#!/bin/sh
# Builds the fatbins of this folder. Made with nvcc and fatbinary of CUDA 13.0.88: pip install nvidia-cuda-nvcc==13.0.88
set -eu
cd "$(dirname "$0")"

# Zstandard: machine code and PTX, with each suffix of an architecture, and code for link-time optimization.
nvcc -fatbin --compress-mode=size -o zstandard.fatbin scale.cu \
    -gencode arch=compute_80,code=[sm_80,compute_80] \
    -gencode arch=compute_90a,code=[sm_90a,compute_90a] \
    -gencode arch=compute_100f,code=[sm_100f,compute_100f] \
    -gencode arch=compute_90,code=lto_90

# LZ4, beside machine code that is not compressed.
nvcc -fatbin --compress-mode=speed -o lz4.fatbin scale.cu -gencode arch=compute_80,code=[sm_80,compute_80]
