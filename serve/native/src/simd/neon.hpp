// 16 lanes in four registers of NEON, with the dot product of Armv8.2. See portable.hpp.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "simd/inline.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = "neon";
constexpr int kInt8TileRows = 6;
constexpr int kFloatTileRows = 6;
constexpr int tile_blocks(long rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
constexpr int kInputOffset = 0;

struct F32 {
  float32x4_t v[4];
};
struct I32 {
  int32x4_t v[4];
};
struct Mask {
  uint32x4_t v[4];
};
struct Quad {
  int8x16_t v;
};
struct Bytes {
  int8x16_t v[4];
};

// Applies f to the four registers of its arguments.
template <class Result, class F, class... Vector>
INLINE Result quarters(F f, const Vector&... x) {
  return {{f(x.v[0]...), f(x.v[1]...), f(x.v[2]...), f(x.v[3]...)}};
}

INLINE F32 load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}}; }
INLINE F32 load(const float* p, long n) {
  float all[16] = {};
  std::memcpy(all, p, sizeof(float) * static_cast<std::size_t>(n < 16 ? n : 16));
  return load(all);
}
INLINE void store(float* p, F32 x) { each<4>([&](auto i) INLINE_LAMBDA { vst1q_f32(p + 4 * i, x.v[i]); }); }
INLINE void store(float* p, F32 x, long n) {
  float all[16];
  store(all, x);
  std::memcpy(p, all, sizeof(float) * static_cast<std::size_t>(n < 16 ? n : 16));
}
INLINE F32 broadcast(float x) { return {{vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}}; }

#define DRAGOMAN_NEON_BINARY(name, Vector, Result, expression)                            \
  INLINE Result name(Vector x, Vector y) {                                                \
    return quarters<Result>([](auto a, auto b) INLINE_LAMBDA { return expression; }, x, y); \
  }
DRAGOMAN_NEON_BINARY(operator+, F32, F32, vaddq_f32(a, b))
DRAGOMAN_NEON_BINARY(operator-, F32, F32, vsubq_f32(a, b))
DRAGOMAN_NEON_BINARY(operator*, F32, F32, vmulq_f32(a, b))
DRAGOMAN_NEON_BINARY(operator/, F32, F32, vdivq_f32(a, b))
DRAGOMAN_NEON_BINARY(max, F32, F32, vbslq_f32(vcgtq_f32(a, b), a, b))
DRAGOMAN_NEON_BINARY(min, F32, F32, vbslq_f32(vcltq_f32(a, b), a, b))
DRAGOMAN_NEON_BINARY(operator<, F32, Mask, vcltq_f32(a, b))
DRAGOMAN_NEON_BINARY(operator+, I32, I32, vaddq_s32(a, b))
DRAGOMAN_NEON_BINARY(operator-, I32, I32, vsubq_s32(a, b))
DRAGOMAN_NEON_BINARY(operator&, I32, I32, vandq_s32(a, b))
DRAGOMAN_NEON_BINARY(operator|, I32, I32, vorrq_s32(a, b))
DRAGOMAN_NEON_BINARY(max, I32, I32, vmaxq_s32(a, b))
#undef DRAGOMAN_NEON_BINARY

INLINE F32 fma(F32 x, F32 y, F32 z) {
  return quarters<F32>([](auto a, auto b, auto c) INLINE_LAMBDA { return vfmaq_f32(c, a, b); }, x, y, z);
}

INLINE I32 load(const std::int32_t* p) {
  return {{vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}};
}
INLINE void store(std::int32_t* p, I32 x) { each<4>([&](auto i) INLINE_LAMBDA { vst1q_s32(p + 4 * i, x.v[i]); }); }
INLINE I32 broadcast(std::int32_t x) { return {{vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x)}}; }
INLINE I32 operator<<(I32 x, int n) {
  const int32x4_t count = vdupq_n_s32(n);
  return quarters<I32>([&](auto a) INLINE_LAMBDA { return vshlq_s32(a, count); }, x);
}

INLINE F32 to_float(I32 x) {
  return quarters<F32>([](auto a) INLINE_LAMBDA { return vcvtq_f32_s32(a); }, x);
}
INLINE I32 bits(F32 x) {
  return quarters<I32>([](auto a) INLINE_LAMBDA { return vreinterpretq_s32_f32(a); }, x);
}
INLINE F32 from_bits(I32 x) {
  return quarters<F32>([](auto a) INLINE_LAMBDA { return vreinterpretq_f32_s32(a); }, x);
}

INLINE Mask first_lanes(long n) {
  const std::int32_t first[4] = {0, 1, 2, 3};
  const int32x4_t lane = vld1q_s32(first), count = vdupq_n_s32(n < 16 ? static_cast<int>(n) : 16);
  return {{vcgtq_s32(count, lane), vcgtq_s32(count, vaddq_s32(lane, vdupq_n_s32(4))),
           vcgtq_s32(count, vaddq_s32(lane, vdupq_n_s32(8))), vcgtq_s32(count, vaddq_s32(lane, vdupq_n_s32(12)))}};
}
INLINE F32 select(Mask m, F32 x, F32 y) {
  return quarters<F32>([](auto c, auto a, auto b) INLINE_LAMBDA { return vbslq_f32(c, a, b); }, m, x, y);
}
INLINE unsigned lane_bits(Mask m) {
  const std::uint32_t place[4] = {1, 2, 4, 8};
  const uint32x4_t each_lane = vld1q_u32(place);
  unsigned r = 0;
  each<4>([&](auto i) INLINE_LAMBDA { r |= vaddvq_u32(vandq_u32(m.v[i], each_lane)) << 4 * i; });
  return r;
}

INLINE float reduce_add(F32 x) {
  const float32x4_t y = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  const float32x2_t z = vadd_f32(vget_low_f32(y), vget_high_f32(y));
  return vget_lane_f32(z, 0) + vget_lane_f32(z, 1);
}
INLINE float32x4_t larger(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE float reduce_max(F32 x) {
  float32x4_t y = larger(larger(x.v[0], x.v[2]), larger(x.v[1], x.v[3]));
  y = larger(y, vextq_f32(y, y, 2));
  return vgetq_lane_f32(larger(y, vextq_f32(y, y, 1)), 0);
}
INLINE std::int32_t reduce_add(I32 x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[2]), vaddq_s32(x.v[1], x.v[3])));
}
INLINE std::int32_t reduce_max(I32 x) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.v[0], x.v[2]), vmaxq_s32(x.v[1], x.v[3])));
}

INLINE I32 widen(const std::int8_t* p) {
  const int8x16_t x = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_s8(vget_high_s8(x));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
           vmovl_s16(vget_high_s16(high))}};
}
INLINE void store_bytes(void* p, I32 x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.v[0]), vmovn_s32(x.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(x.v[2]), vmovn_s32(x.v[3]));
  vst1q_s8(static_cast<std::int8_t*>(p), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

INLINE Quad load_quad(const void* p) {
  std::int32_t four;
  std::memcpy(&four, p, sizeof four);
  return {vreinterpretq_s8_s32(vdupq_n_s32(four))};
}
INLINE Bytes load_bytes(const std::int8_t* p) {
  return {{vld1q_s8(p), vld1q_s8(p + 16), vld1q_s8(p + 32), vld1q_s8(p + 48)}};
}
INLINE Bytes load_bytes(const std::int8_t* p, long n) {
  std::int8_t all[64] = {};
  std::memcpy(all, p, static_cast<std::size_t>(4 * (n < 16 ? n : 16)));
  return load_bytes(all);
}

INLINE I32 first_sum(const std::int32_t*) { return broadcast(std::int32_t{0}); }
INLINE I32 first_score(std::int32_t) { return broadcast(std::int32_t{0}); }
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  return quarters<I32>([&](auto s, auto b) INLINE_LAMBDA { return vdotq_s32(s, b, x.v); }, sum, w);
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) { return dot_weights(sum, q, k); }
// p = (p - 128) + 64 + 64 in signed bytes.
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) {
  const Quad rest{veorq_s8(p.v, vdupq_n_s8(-128))}, quarter{vdupq_n_s8(64)};
  return dot_weights(dot_weights(dot_weights(sum, rest, v), quarter, v), quarter, v);
}

}  // namespace
}  // namespace dragoman
