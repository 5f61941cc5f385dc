// The table of one instruction set's kernels.
#include "isa.h"

namespace hdcos::HDCOS_ISA {

#define HDCOS_TEXT(x) #x
#define HDCOS_NAME(x) HDCOS_TEXT(x)

const Kernels kernels = {
    HDCOS_NAME(HDCOS_ISA),
    matmul,
    conv2d,
    walsh_hadamard,
    round_open,
    pack,
    unpack,
    unpack_sum,
    trig_words,
    dither,
    trig_combine,
    rotate,
    hadamard_cos,
    hadamard_cos_open,
    hadamard_back,
    spread,
    pool_sum,
    lifted_sums,
    lifted_times,
    lifted_product,
    sign_lookup,
    sign_combine,
};

}  // namespace hdcos::HDCOS_ISA
