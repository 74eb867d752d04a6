// Any processor: 16 lanes in four registers of 16 bytes, or in what the compiler makes of them.
#pragma once

#define DRAGOMAN_CALLS  // all inlined takes minutes to compile
#include "simd/lanes.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = "portable";
constexpr int kInt8TileRows = 2;
constexpr int kFloatTileRows = 2;
constexpr int tile_blocks(long) { return 1; }
constexpr int kInputOffset = 0;

typedef std::int16_t ShortRegister __attribute__((vector_size(kRegisterBytes)));

INLINE F32 fma(F32 x, F32 y, F32 z) {
  float a[16], b[16], c[16];
  store(a, x), store(b, y), store(c, z);
  for (int i = 0; i < 16; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return load(c);
}
INLINE unsigned lane_bits(Mask m) {
  constexpr std::int32_t kBit[16] = {1,     1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                                     1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
  return static_cast<unsigned>(reduce_add(load_registers<I32>(m.v) & load(kBit)));
}
INLINE void store_bytes(void* p, I32 x) {
  std::int32_t all[16];
  store(all, x);
  for (int i = 0; i < 16; ++i) static_cast<std::uint8_t*>(p)[i] = static_cast<std::uint8_t>(all[i]);
}

// Adds the 16-bit products of the even and of the odd bytes; 255 * 127 fits.
INLINE I32 dot(I32 sum, ShortRegister even, ShortRegister odd, Bytes b) {
  return registers<I32>([&](auto s, auto four) INLINE_LAMBDA {
    const IntRegister x = IntRegister(ShortRegister(ShortRegister(four) << 8 >> 8) * even);
    const IntRegister y = IntRegister(ShortRegister(ShortRegister(four) >> 8) * odd);
    return s + (x << 16 >> 16) + (x >> 16) + (y << 16 >> 16) + (y >> 16);
  }, sum, b);
}
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) {
  const auto four = ShortRegister(x.v);
  return dot(sum, four << 8 >> 8, four >> 8, w);
}
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) { return dot_weights(sum, q, k); }
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) {
  const auto four = ShortRegister(p.v);
  return dot(sum, four & 255, four >> 8 & 255, v);
}

}  // namespace
}  // namespace dragoman
