// AES-256 in counter mode, where the processor has it in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hdcos {

// Whether this build and this processor have it (dispatch.cpp: that must run anywhere).
bool has_keystream();

// `size` bytes of the stream of a 32-byte key from 16-byte block number `block` on, each word of 8 bytes and `keep`.
void keystream(const std::uint8_t* key, std::uint64_t block, std::uint64_t keep, std::uint8_t* out, std::size_t size);

}  // namespace hdcos
