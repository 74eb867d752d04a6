// Products of 8-bit numbers by an instruction that multiplies unsigned with signed bytes: `multiply_add` of a register.
#pragma once

#include "simd/lanes.hpp"

namespace dragoman {
namespace {

constexpr int kInputOffset = 128;

INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  return registers<I32>([&](auto s, auto b) INLINE_LAMBDA { return multiply_add(s, x.v, b); }, sum, w);
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  const IntRegister sign = broadcast_register(kSigns);
  return registers<I32>([&](auto s, auto b) INLINE_LAMBDA { return multiply_add(s, b ^ sign, q.v); }, sum, k);
}
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) { return dot_weights(sum, p, v); }

}  // namespace
}  // namespace dragoman
