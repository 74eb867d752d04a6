// 16 lanes in one register of AVX512, with VNNI. The vocabulary is described in portable.hpp.
#pragma once

#include "simd/x86.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = "avx512";
constexpr int kInt8TileRows = 6;
constexpr int kFloatTileRows = 6;
constexpr int tile_blocks(long) { return 4; }
constexpr int kInputOffset = 128;

struct F32 {
  __m512 v;
};
struct I32 {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};
struct Quad {
  __m512i v;
};
struct Bytes {
  __m512i v;
};

INLINE Mask first_lanes(long n) { return {static_cast<__mmask16>(n < 16 ? (1u << n) - 1 : 0xffffu)}; }

INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE F32 load(const float* p, long n) { return {_mm512_maskz_loadu_ps(first_lanes(n).v, p)}; }
INLINE void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
INLINE void store(float* p, F32 a, long n) { _mm512_mask_storeu_ps(p, first_lanes(n).v, a.v); }
INLINE F32 broadcast(float x) { return {_mm512_set1_ps(x)}; }
INLINE F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }

INLINE I32 load(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE void store(std::int32_t* p, I32 a) { _mm512_storeu_si512(p, a.v); }
INLINE I32 broadcast(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
INLINE I32 operator+(I32 a, I32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
INLINE I32 operator-(I32 a, I32 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
INLINE I32 operator&(I32 a, I32 b) { return {_mm512_and_si512(a.v, b.v)}; }
INLINE I32 operator|(I32 a, I32 b) { return {_mm512_or_si512(a.v, b.v)}; }
INLINE I32 operator<<(I32 a, int n) { return {_mm512_sll_epi32(a.v, _mm_cvtsi32_si128(n))}; }
INLINE I32 max(I32 a, I32 b) { return {_mm512_max_epi32(a.v, b.v)}; }

INLINE F32 to_float(I32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
INLINE I32 bits(F32 a) { return {_mm512_castps_si512(a.v)}; }
INLINE F32 from_bits(I32 a) { return {_mm512_castsi512_ps(a.v)}; }

INLINE Mask operator<(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
INLINE F32 select(Mask m, F32 a, F32 b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }
INLINE unsigned lane_bits(Mask m) { return m.v; }

INLINE __m256 low(F32 a) { return _mm512_castps512_ps256(a.v); }
INLINE __m256 high(F32 a) { return _mm512_castps512_ps256(_mm512_shuffle_f32x4(a.v, a.v, 0xee)); }
INLINE __m256i low(I32 a) { return _mm512_castsi512_si256(a.v); }
INLINE __m256i high(I32 a) { return _mm512_castsi512_si256(_mm512_shuffle_i32x4(a.v, a.v, 0xee)); }
INLINE float reduce_add(F32 a) { return reduce_add(_mm256_add_ps(low(a), high(a))); }
INLINE float reduce_max(F32 a) { return reduce_max(_mm256_max_ps(low(a), high(a))); }
INLINE std::int32_t reduce_add(I32 a) { return reduce_add(_mm256_add_epi32(low(a), high(a))); }
INLINE std::int32_t reduce_max(I32 a) { return reduce_max(_mm256_max_epi32(low(a), high(a))); }

INLINE I32 widen(const std::int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
INLINE void store_bytes(void* p, I32 a) { _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v)); }

INLINE Quad load_quad(const void* p) {
  std::int32_t four;
  std::memcpy(&four, p, sizeof four);
  return {_mm512_set1_epi32(four)};
}
INLINE Bytes load_bytes(const std::int8_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE Bytes load_bytes(const std::int8_t* p, long n) { return {_mm512_maskz_loadu_epi32(first_lanes(n).v, p)}; }

// GCC 12 spills sums that its own intrinsic of the instruction updates.
INLINE I32 multiply_add(I32 sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(unsigned_bytes), "v"(signed_bytes));
  return sum;
}
INLINE I32 first_sum(const std::int32_t* offset) { return load(offset); }
INLINE I32 first_score(std::int32_t query_sum) { return broadcast(-128 * query_sum); }
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) { return multiply_add(sum, x.v, w.v); }
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  return multiply_add(sum, _mm512_xor_si512(k.v, _mm512_set1_epi8(-128)), q.v);
}
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) { return multiply_add(sum, p.v, v.v); }

}  // namespace
}  // namespace dragoman
