// 16 floats or 16 integers as one value, in plain C++. The other headers of this folder define the same names.
//
// The vocabulary of an instruction set:
// - F32, I32, Mask: 16 lanes; Quad: four bytes for every lane; Bytes: four bytes per lane.
// - max(a, b) is a > b ? a : b and min(a, b) is a < b ? a : b, so NaN in `b` stays and NaN in `a` is lost.
// - Reductions add lanes i and i + 8, then i + 4, i + 2, i + 1.
// - `dot_weights` multiplies 8-bit inputs of a product, stored plus kInputOffset, and starts from `first_sum`.
// - `dot_keys` multiplies a signed query and signed keys and starts from `first_score(sum of the query)`.
// - `dot_values` multiplies unsigned attention weights and signed values.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/inline.hpp"

namespace dragoman {
namespace {

constexpr const char* kName = "portable";
constexpr int kInt8TileRows = 2;   // rows of a tile of a product, at most
constexpr int kFloatTileRows = 2;  // the same for floats
// Blocks of 16 outputs of a tile with so many rows of a product: few rows take more, for enough sums in flight.
constexpr int tile_blocks(long) { return 1; }
constexpr int kInputOffset = 128;  // added to the signed inputs of a product

struct F32 {
  float v[16];
};
struct I32 {
  std::int32_t v[16];
};
struct Mask {
  bool v[16];
};
struct Quad {
  std::uint8_t v[4];
};
struct Bytes {
  std::int8_t v[64];
};

template <class Vector, class F>
INLINE Vector lanes(F f) {
  Vector r;
  for (int i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}

// The low 32 bits.
INLINE std::int32_t wrap(std::int64_t x) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(x)); }

INLINE F32 load(const float* p) {
  return lanes<F32>([&](int i) { return p[i]; });
}
INLINE F32 load(const float* p, long n) {
  return lanes<F32>([&](int i) { return i < n ? p[i] : 0.0f; });
}
INLINE void store(float* p, F32 a) { std::memcpy(p, a.v, sizeof a.v); }
INLINE void store(float* p, F32 a, long n) {
  for (int i = 0; i < 16 && i < n; ++i) p[i] = a.v[i];
}
INLINE F32 broadcast(float x) {
  return lanes<F32>([&](int) { return x; });
}
// Defines a function of two vectors, lane by lane.
#define DRAGOMAN_BINARY(name, Vector, Result, expression)      \
  INLINE Result name(const Vector& x, const Vector& y) {       \
    return lanes<Result>([&](int i) {                          \
      const auto a = x.v[i], b = y.v[i];                       \
      return expression;                                       \
    });                                                        \
  }
DRAGOMAN_BINARY(operator+, F32, F32, a + b)
DRAGOMAN_BINARY(operator-, F32, F32, a - b)
DRAGOMAN_BINARY(operator*, F32, F32, a * b)
DRAGOMAN_BINARY(operator/, F32, F32, a / b)
DRAGOMAN_BINARY(max, F32, F32, a > b ? a : b)
DRAGOMAN_BINARY(min, F32, F32, a < b ? a : b)
DRAGOMAN_BINARY(operator<, F32, Mask, a < b)
DRAGOMAN_BINARY(operator+, I32, I32, wrap(std::int64_t{a} + b))
DRAGOMAN_BINARY(operator-, I32, I32, wrap(std::int64_t{a} - b))
DRAGOMAN_BINARY(operator&, I32, I32, a & b)
DRAGOMAN_BINARY(operator|, I32, I32, a | b)
DRAGOMAN_BINARY(max, I32, I32, a > b ? a : b)
#undef DRAGOMAN_BINARY
INLINE F32 fma(F32 a, F32 b, F32 c) {
  return lanes<F32>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}

INLINE I32 load(const std::int32_t* p) {
  return lanes<I32>([&](int i) { return p[i]; });
}
INLINE void store(std::int32_t* p, I32 a) { std::memcpy(p, a.v, sizeof a.v); }
INLINE I32 broadcast(std::int32_t x) {
  return lanes<I32>([&](int) { return x; });
}
INLINE I32 operator<<(I32 a, int n) {
  return lanes<I32>([&](int i) { return wrap(std::int64_t{a.v[i]} * (std::int64_t{1} << n)); });
}

INLINE F32 to_float(I32 a) {
  return lanes<F32>([&](int i) { return static_cast<float>(a.v[i]); });
}
INLINE I32 bits(F32 a) {
  I32 r;
  std::memcpy(&r, &a, sizeof r);
  return r;
}
INLINE F32 from_bits(I32 a) {
  F32 r;
  std::memcpy(&r, &a, sizeof r);
  return r;
}

INLINE Mask first_lanes(long n) {
  return lanes<Mask>([&](int i) { return i < n; });
}
INLINE F32 select(Mask m, F32 a, F32 b) {
  return lanes<F32>([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; });
}
// One bit per lane.
INLINE unsigned lane_bits(Mask m) {
  unsigned r = 0;
  for (unsigned i = 0; i < 16; ++i) r |= (m.v[i] ? 1u : 0u) << i;
  return r;
}

template <class Vector, class F>
INLINE auto tree(Vector a, F f) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = f(a.v[i], a.v[i + half]);
  return a.v[0];
}
INLINE float reduce_add(F32 a) {
  return tree(a, [](float x, float y) { return x + y; });
}
INLINE float reduce_max(F32 a) {
  return tree(a, [](float x, float y) { return x > y ? x : y; });
}
INLINE std::int32_t reduce_add(I32 a) {
  return tree(a, [](std::int32_t x, std::int32_t y) { return x + y; });
}
INLINE std::int32_t reduce_max(I32 a) {
  return tree(a, [](std::int32_t x, std::int32_t y) { return x > y ? x : y; });
}

// 16 signed bytes to integers, and the low bytes of integers.
INLINE I32 widen(const std::int8_t* p) {
  return lanes<I32>([&](int i) { return std::int32_t{p[i]}; });
}
INLINE void store_bytes(void* p, I32 a) {
  auto* to = static_cast<std::uint8_t*>(p);
  for (int i = 0; i < 16; ++i) to[i] = static_cast<std::uint8_t>(a.v[i]);
}

INLINE Quad load_quad(const void* p) {
  Quad r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
INLINE Bytes load_bytes(const std::int8_t* p) {
  Bytes r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
INLINE Bytes load_bytes(const std::int8_t* p, long n) {
  Bytes r = {};
  std::memcpy(r.v, p, static_cast<std::size_t>(4 * (n < 16 ? n : 16)));
  return r;
}

INLINE I32 first_sum(const std::int32_t* offset) { return load(offset); }
INLINE I32 first_score(std::int32_t) { return broadcast(std::int32_t{0}); }
// a holds 9-bit numbers.
INLINE I32 dot(I32 sum, const std::int16_t (&a)[4], const Bytes& b) {
  return sum + lanes<I32>([&](int i) {
           const std::int8_t* four = b.v + 4 * i;
           return a[0] * four[0] + a[1] * four[1] + a[2] * four[2] + a[3] * four[3];
         });
}
INLINE I32 dot_weights(I32 sum, Quad x, Bytes w) { return dot(sum, {x.v[0], x.v[1], x.v[2], x.v[3]}, w); }
INLINE I32 dot_keys(I32 sum, Quad q, Bytes k) {
  std::int8_t s[4];
  std::memcpy(s, q.v, sizeof s);
  return dot(sum, {s[0], s[1], s[2], s[3]}, k);
}
INLINE I32 dot_values(I32 sum, Quad p, Bytes v) { return dot_weights(sum, p, v); }

}  // namespace
}  // namespace dragoman
