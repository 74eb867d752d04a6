// AVX512 with VNNI: 16 lanes in one register.
#pragma once

#include "simd/lanes.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = DRAGOMAN_TEXT(DRAGOMAN_SET);
constexpr int kInt8TileRows = 6;
constexpr int kFloatTileRows = 6;
constexpr int tile_blocks(long) { return 4; }

INLINE F32 fma(F32 a, F32 b, F32 c) { return {{_mm512_fmadd_ps(a.v[0], b.v[0], c.v[0])}}; }
INLINE unsigned lane_bits(Mask m) { return _mm512_movepi32_mask(__m512i(m.v[0])); }
INLINE void store_bytes(void* p, I32 a) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(__m512i(a.v[0])));
}
// GCC 12 spills sums that its own intrinsic of the instruction updates.
INLINE IntRegister multiply_add(IntRegister sum, IntRegister unsigned_bytes, IntRegister signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
  return sum;
}

}  // namespace
}  // namespace dragoman

#include "simd/vnni.hpp"
