// AVX2 without VNNI.
#pragma once

#include "simd/avx.hpp"

namespace dragoman {
namespace {

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
// a * b = |b| * (a with the sign of b); neither is -128. The magnitude is that of the operand with fewer registers.
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  const __m256i a = __m256i(x.v);
  return registers<I32>([&](auto s, auto four) INLINE_LAMBDA {
    const __m256i b = __m256i(four);
    return multiply_add(s, _mm256_abs_epi8(b), _mm256_sign_epi8(a, b));
  }, sum, w);
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  const __m256i a = __m256i(q.v), magnitude = _mm256_abs_epi8(a);
  return registers<I32>([&](auto s, auto four) INLINE_LAMBDA {
    return multiply_add(s, magnitude, _mm256_sign_epi8(__m256i(four), a));
  }, sum, k);
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
