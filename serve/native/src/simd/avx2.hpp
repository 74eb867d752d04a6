// 16 lanes in two registers of AVX2, with AVX-VNNI where the compiler may use it. See portable.hpp.
#pragma once

#include "simd/x86.hpp"

namespace dragoman {
namespace {

constexpr int kFloatTileRows = 6;
constexpr int tile_blocks(long rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

struct F32 {
  __m256 a, b;
};
struct I32 {
  __m256i a, b;
};
struct Mask {
  __m256 a, b;
};
struct Quad {
  __m256i v;
};
struct Bytes {
  __m256i a, b;
};

INLINE __m256i load_half(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
INLINE void store_half(void* p, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }

INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, F32 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
INLINE F32 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE F32 operator+(F32 x, F32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
INLINE F32 operator-(F32 x, F32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
INLINE F32 operator*(F32 x, F32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
INLINE F32 operator/(F32 x, F32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
INLINE F32 fma(F32 x, F32 y, F32 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
INLINE F32 max(F32 x, F32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
INLINE F32 min(F32 x, F32 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }

INLINE I32 load(const std::int32_t* p) { return {load_half(p), load_half(p + 8)}; }
INLINE void store(std::int32_t* p, I32 x) {
  store_half(p, x.a);
  store_half(p + 8, x.b);
}
INLINE I32 broadcast(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE I32 operator+(I32 x, I32 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
INLINE I32 operator-(I32 x, I32 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
INLINE I32 operator&(I32 x, I32 y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
INLINE I32 operator|(I32 x, I32 y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
INLINE I32 operator<<(I32 x, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_sll_epi32(x.a, count), _mm256_sll_epi32(x.b, count)};
}
INLINE I32 max(I32 x, I32 y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }

INLINE F32 to_float(I32 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
INLINE I32 bits(F32 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
INLINE F32 from_bits(I32 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

INLINE Mask operator<(F32 x, F32 y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
INLINE Mask first_lanes(long n) {
  const __m256i count = _mm256_set1_epi32(n < 16 ? static_cast<int>(n) : 16);
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, low)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, high))};
}
INLINE F32 select(Mask m, F32 x, F32 y) { return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)}; }
INLINE unsigned lane_bits(Mask m) {
  return static_cast<unsigned>(_mm256_movemask_ps(m.a) | _mm256_movemask_ps(m.b) << 8);
}
INLINE F32 load(const float* p, long n) {
  const Mask m = first_lanes(n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.a)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
INLINE void store(float* p, F32 x, long n) {
  const Mask m = first_lanes(n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}

INLINE float reduce_add(F32 x) { return reduce_add(_mm256_add_ps(x.a, x.b)); }
INLINE float reduce_max(F32 x) { return reduce_max(_mm256_max_ps(x.a, x.b)); }
INLINE std::int32_t reduce_add(I32 x) { return reduce_add(_mm256_add_epi32(x.a, x.b)); }
INLINE std::int32_t reduce_max(I32 x) { return reduce_max(_mm256_max_epi32(x.a, x.b)); }

INLINE I32 widen(const std::int8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
INLINE void store_bytes(void* p, I32 x) {
  const __m256i first = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                         0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i y = _mm256_unpacklo_epi32(_mm256_shuffle_epi8(x.a, first), _mm256_shuffle_epi8(x.b, first));
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm_unpacklo_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1)));
}

INLINE Quad load_quad(const void* p) {
  std::int32_t four;
  std::memcpy(&four, p, sizeof four);
  return {_mm256_set1_epi32(four)};
}
INLINE Bytes load_bytes(const std::int8_t* p) { return {load_half(p), load_half(p + 32)}; }
INLINE Bytes load_bytes(const std::int8_t* p, long n) {
  std::int8_t all[64] = {};
  std::memcpy(all, p, static_cast<std::size_t>(4 * (n < 16 ? n : 16)));
  return load_bytes(all);
}

#ifdef DRAGOMAN_AVX_VNNI

constexpr const char* kName = "avx-vnni";
constexpr int kInt8TileRows = 6;
constexpr int kInputOffset = 128;

INLINE __m256i multiply_add(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  __asm__(DRAGOMAN_AVX_VNNI " vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_bytes), "x"(signed_bytes));
  return sum;
}
INLINE I32 first_sum(const std::int32_t* offset) { return load(offset); }
INLINE I32 first_score(std::int32_t query_sum) { return broadcast(-128 * query_sum); }
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  return {multiply_add(sum.a, x.v, w.a), multiply_add(sum.b, x.v, w.b)};
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  const __m256i sign = _mm256_set1_epi8(-128);
  return {multiply_add(sum.a, _mm256_xor_si256(k.a, sign), q.v), multiply_add(sum.b, _mm256_xor_si256(k.b, sign), q.v)};
}
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) { return dot_weights(sum, p, v); }

#else

constexpr const char* kName = "avx2";
constexpr int kInt8TileRows = 4;
constexpr int kInputOffset = 0;

// Sums of two 16-bit products of 8-bit numbers saturate only if both are beyond 2 * 127 * 127.
INLINE __m256i multiply_add(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i pairs = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
  const __m256i products = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));  // GCC 12 spills sums that its own intrinsic updates
  return sum;
}
// a * b = |b| * (a with the sign of b); neither is -128.
INLINE __m256i multiply_add_signed(__m256i sum, __m256i a, __m256i b) {
  return multiply_add(sum, _mm256_abs_epi8(b), _mm256_sign_epi8(a, b));
}
INLINE I32 first_sum(const std::int32_t*) { return broadcast(std::int32_t{0}); }
INLINE I32 first_score(std::int32_t) { return broadcast(std::int32_t{0}); }
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  return {multiply_add_signed(sum.a, x.v, w.a), multiply_add_signed(sum.b, x.v, w.b)};
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) { return dot_weights(sum, q, k); }
// Even and odd bytes apart: one product of 255 * 127 does not saturate, two might.
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) {
  const __m256i even = _mm256_and_si256(p.v, _mm256_set1_epi16(0xff)), odd = _mm256_sub_epi8(p.v, even);
  return {multiply_add(multiply_add(sum.a, even, v.a), odd, v.a),
          multiply_add(multiply_add(sum.b, even, v.b), odd, v.b)};
}

#endif

}  // namespace
}  // namespace dragoman
