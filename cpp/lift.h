// From opened values D to the E and t of x = E - m + t b.
#pragma once

#include "kernels.h"

namespace hdcos::HDCOS_ISA {

template <class T>
static void lift_as(const T* D, std::size_t count, int bits, u64* E, u64* t) {
    const u64 middle = u64{1} << (bits - 2);
    for (std::size_t i = 0; i < count; ++i) {
        const u64 d = D[i];
        E[i] = d - middle;
        t[i] = (1 - (d >> (bits - 1))) << bits;
    }
}

// `count` values of 4 or 8 bytes from number `first` on.
static inline void lift(Compact D, std::size_t first, std::size_t count, int bits, u64* E, u64* t) {
    if (D.itemsize == 4) lift_as(static_cast<const std::uint32_t*>(D.data) + first, count, bits, E, t);
    else lift_as(static_cast<const u64*>(D.data) + first, count, bits, E, t);
}

}  // namespace hdcos::HDCOS_ISA
