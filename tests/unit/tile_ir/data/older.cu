// What NVRTC 13.3.33 and 13.4.92 compile, too: files of versions 13.3 and 13.4, in the folder /.
#include "cuda_tile.h"
namespace ct = cuda::tiles;

extern "C" __tile_global__ void older(const float* x, int* whole, float* rest, int n) {
    auto from = ct::partition_view{ct::tensor_span{x, ct::extents{n}}, ct::shape<128>{}};
    auto to = ct::partition_view{ct::tensor_span{whole, ct::extents{n}}, ct::shape<128>{}};
    auto left = ct::partition_view{ct::tensor_span{rest, ct::extents{n}}, ct::shape<128>{}};
    auto tile = from.load_masked(0);
    auto cut = ct::element_cast<int>(tile);
    to.store_masked(cut, 0);
    left.store_masked(ct::sqrt(ct::exp(tile) * ct::exp2(tile)) + ct::tanh(tile) - ct::element_cast<float>(cut), 0);
    printf("%d\n", n);
}
