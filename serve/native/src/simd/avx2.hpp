// AVX2 without VNNI.
#pragma once

#define DRAGOMAN_PAIRS  // products of pairs of inputs add in 16 bits
#include "simd/avx.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = "avx2";
constexpr int kInt8TileRows = 4;
constexpr int kInputOffset = 0;

// Sums of two 16-bit products of 8-bit numbers saturate only if both are beyond 2 * 127 * 127.
INLINE IntRegister multiply_add(IntRegister sum, __m256i unsigned_bytes, __m256i signed_bytes,
                                __m256i ones = _mm256_set1_epi16(1)) {
  const __m256i pairs = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
  const __m256i products = _mm256_madd_epi16(pairs, ones);
  __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));  // GCC 12 spills sums that its own addition updates
  return sum;
}
// q * k = |q| * (k with the sign of q); neither is -128.
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  const __m256i a = __m256i(q.v), magnitude = _mm256_abs_epi8(a);
  return registers<I32>([&](auto s, auto four) INLINE_LAMBDA {
    return multiply_add(s, magnitude, _mm256_sign_epi8(__m256i(four), a));
  }, sum, k);
}
// Constants of a loop, which GCC 12 would make anew in each turn if it knew them.
struct PairConstants {
  PairConstants() { __asm__("" : "+x"(ones), "+x"(signs)); }
  IntRegister ones = IntRegister(_mm256_set1_epi16(1)), signs = broadcast_register(kSigns);
};
// Unsigned weights; no sum of two products may be beyond 16 bits.
INLINE I32 dot_unsigned(I32 sum, Quad x, Bytes w, const PairConstants& constants) {
  return registers<I32>([&](auto s, auto four) INLINE_LAMBDA {
    return multiply_add(s, __m256i(four), __m256i(x.v), __m256i(constants.ones));
  }, sum, w);
}
INLINE Bytes plus_128(Bytes w, const PairConstants& constants) {
  return registers<Bytes>([&](auto four) INLINE_LAMBDA { return four ^ constants.signs; }, w);
}
// Even and odd bytes apart: one product of 255 * 127 does not saturate, two might.
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) {
  const __m256i all = __m256i(p.v), even = _mm256_and_si256(all, _mm256_set1_epi16(0xff));
  const __m256i odd = _mm256_sub_epi8(all, even);
  return registers<I32>([&](auto s, auto b) INLINE_LAMBDA {
    return multiply_add(multiply_add(s, even, __m256i(b)), odd, __m256i(b));
  }, sum, v);
}

}  // namespace
}  // namespace dragoman
