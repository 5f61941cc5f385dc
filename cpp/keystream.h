// AES-256 in counter mode, where the processor has it in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hdcos {

// Whether this build and this processor have it (dispatch.cpp: that must run anywhere).
bool has_keystream();

// The stream of one key, read from anywhere.
class KeyStream {
  public:
    explicit KeyStream(const std::uint8_t* key);  // 32 bytes

    // `size` bytes from byte `offset` on; each word of 8 bytes, counted from the last block boundary, and `keep`.
    void read(std::uint64_t offset, std::uint64_t keep, std::uint8_t* out, std::size_t size) const;

  private:
    void blocks(std::uint64_t block, std::uint64_t keep, std::uint8_t* out, std::size_t size) const;

    alignas(64) std::uint8_t rounds_[15 * 64];
};

}  // namespace hdcos
