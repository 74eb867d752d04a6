// AVX512 with VNNI, and AMX: eight tiles of 16 rows of 64 bytes, and their product.
#pragma once

#include "simd/avx512.hpp"

namespace dragoman {
namespace {

// The form that the processor reads. Tiles have 16 rows unless told otherwise.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

INLINE void configure_tiles(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(shapes)); }
// A thread that holds tiles costs more to switch.
INLINE void release_tiles() { __asm__ volatile("tilerelease"); }
template <int kTile>
INLINE void load_tile(const void* p, Index stride) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kTile>
INLINE void save_tile(void* p) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(p), "r"(Index{64}) : "memory");
}
template <int kSums, int kInputs, int kWeights>
INLINE void dot_tiles() {
  __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kInputs), "i"(kWeights));
}

}  // namespace
}  // namespace dragoman
