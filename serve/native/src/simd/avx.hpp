// 16 lanes in two registers of AVX.
#pragma once

#include "simd/lanes.hpp"

namespace dragoman {
namespace {

constexpr int kFloatTileRows = 6;
constexpr int tile_blocks(long rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

INLINE F32 fma(F32 x, F32 y, F32 z) {
  return registers<F32>([](auto a, auto b, auto c) INLINE_LAMBDA { return _mm256_fmadd_ps(a, b, c); }, x, y, z);
}
INLINE unsigned lane_bits(Mask m) {
  return static_cast<unsigned>(_mm256_movemask_ps(__m256(m.v[0])) | _mm256_movemask_ps(__m256(m.v[1])) << 8);
}
INLINE void store_bytes(void* p, I32 x) {
  const __m256i first = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                         0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i y = _mm256_unpacklo_epi32(_mm256_shuffle_epi8(__m256i(x.v[0]), first),
                                          _mm256_shuffle_epi8(__m256i(x.v[1]), first));
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm_unpacklo_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1)));
}

}  // namespace
}  // namespace dragoman
