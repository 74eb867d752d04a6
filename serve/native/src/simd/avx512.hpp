// AVX512 with VNNI: 16 lanes in one register.
#pragma once

#include "simd/lanes.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = "avx512";
constexpr int kInt8TileRows = 6;
constexpr int kFloatTileRows = 6;
constexpr int tile_blocks(long) { return 4; }
constexpr int kInputOffset = 128;

INLINE F32 fma(F32 a, F32 b, F32 c) { return {{_mm512_fmadd_ps(a.v[0], b.v[0], c.v[0])}}; }
INLINE unsigned lane_bits(Mask m) { return _mm512_movepi32_mask(__m512i(m.v[0])); }
INLINE void store_bytes(void* p, I32 a) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(__m512i(a.v[0])));
}

// GCC 12 spills sums that its own intrinsic of the instruction updates.
INLINE I32 multiply_add(I32 sum, IntRegister unsigned_bytes, IntRegister signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum.v[0]) : "v"(unsigned_bytes), "v"(signed_bytes));
  return sum;
}
INLINE I32 first_sum(const std::int32_t* offset) { return load(offset); }
INLINE I32 first_score(std::int32_t query_sum) { return broadcast(-128 * query_sum); }
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) { return multiply_add(sum, x.v, w.v[0]); }
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  return multiply_add(sum, k.v[0] ^ broadcast_register(INT32_MIN | 0x00808080), q.v);
}
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) { return multiply_add(sum, p.v, v.v[0]); }

}  // namespace
}  // namespace dragoman
