// AVX2: 16 lanes in two registers; with AVX-VNNI where the compiler may use it.
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

#ifdef DRAGOMAN_AVX_VNNI

constexpr const char* kName = "avx-vnni";
constexpr int kInt8TileRows = 6;
constexpr int kInputOffset = 128;

INLINE IntRegister multiply_add(IntRegister sum, IntRegister unsigned_bytes, IntRegister signed_bytes) {
  __asm__(DRAGOMAN_AVX_VNNI " vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_bytes), "x"(signed_bytes));
  return sum;
}
INLINE I32 first_sum(const std::int32_t* offset) { return load(offset); }
INLINE I32 first_score(std::int32_t query_sum) { return broadcast(-128 * query_sum); }
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  return registers<I32>([&](auto s, auto b) INLINE_LAMBDA { return multiply_add(s, x.v, b); }, sum, w);
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  const IntRegister sign = broadcast_register(INT32_MIN | 0x00808080);
  return registers<I32>([&](auto s, auto b) INLINE_LAMBDA { return multiply_add(s, b ^ sign, q.v); }, sum, k);
}
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) { return dot_weights(sum, p, v); }

#else

constexpr const char* kName = "avx2";
constexpr int kInt8TileRows = 4;
constexpr int kInputOffset = 0;

// Sums of two 16-bit products of 8-bit numbers saturate only if both are beyond 2 * 127 * 127.
INLINE IntRegister multiply_add(IntRegister sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i pairs = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
  const __m256i products = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));  // GCC 12 spills sums that its own addition updates
  return sum;
}
INLINE I32 first_sum(const std::int32_t*) { return broadcast(std::int32_t{0}); }
INLINE I32 first_score(std::int32_t) { return broadcast(std::int32_t{0}); }
// a * b = |b| * (a with the sign of b); neither is -128.
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  const __m256i a = __m256i(x.v);
  return registers<I32>([&](auto s, auto four) INLINE_LAMBDA {
    const __m256i b = __m256i(four);
    return multiply_add(s, _mm256_abs_epi8(b), _mm256_sign_epi8(a, b));
  }, sum, w);
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) { return dot_weights(sum, q, k); }
// Even and odd bytes apart: one product of 255 * 127 does not saturate, two might.
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) {
  const __m256i all = __m256i(p.v), even = _mm256_and_si256(all, _mm256_set1_epi16(0xff));
  const __m256i odd = _mm256_sub_epi8(all, even);
  return registers<I32>([&](auto s, auto b) INLINE_LAMBDA {
    return multiply_add(multiply_add(s, even, __m256i(b)), odd, __m256i(b));
  }, sum, v);
}

#endif

}  // namespace
}  // namespace dragoman
