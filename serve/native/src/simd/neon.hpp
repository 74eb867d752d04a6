// NEON with the dot product of Armv8.2: 16 lanes in four registers.
#pragma once

#include <arm_neon.h>

#include "simd/lanes.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = "neon";
constexpr int kInt8TileRows = 6;
constexpr int kFloatTileRows = 6;
constexpr int tile_blocks(long rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
constexpr int kInputOffset = 0;

INLINE F32 fma(F32 x, F32 y, F32 z) {
  return registers<F32>([](auto a, auto b, auto c) INLINE_LAMBDA {
    return FloatRegister(vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b)));
  }, x, y, z);
}
INLINE unsigned lane_bits(Mask m) {
  const std::uint32_t bits[4] = {1, 2, 4, 8};
  unsigned r = 0;
  each<4>([&](auto i) INLINE_LAMBDA { r |= vaddvq_u32(vandq_u32(uint32x4_t(m.v[i]), vld1q_u32(bits))) << 4 * i; });
  return r;
}
INLINE void store_bytes(void* p, I32 x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(int32x4_t(x.v[0])), vmovn_s32(int32x4_t(x.v[1])));
  const int16x8_t high = vcombine_s16(vmovn_s32(int32x4_t(x.v[2])), vmovn_s32(int32x4_t(x.v[3])));
  vst1q_s8(static_cast<std::int8_t*>(p), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  return registers<I32>([&](auto s, auto b) INLINE_LAMBDA {
    return IntRegister(vdotq_s32(int32x4_t(s), int8x16_t(b), int8x16_t(x.v)));
  }, sum, w);
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) { return dot_weights(sum, q, k); }
// p = (p - 128) + 64 + 64 in signed bytes.
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) {
  const Quad rest{p.v ^ broadcast_register(kSigns)}, quarter{broadcast_register(0x40404040)};
  return dot_weights(dot_weights(dot_weights(sum, rest, v), quarter, v), quarter, v);
}

}  // namespace
}  // namespace dragoman
