// 16 floats or 16 integers as one value, in as many registers as the instruction set needs. The compiler writes most
// instructions; the other headers of this folder have those that it does not find.
//
// An instruction set defines:
// - kName, kInt8TileRows, kFloatTileRows and `tile_blocks`, the shapes of the tiles of a product;
// - kInputOffset: the 8-bit inputs of a product are stored plus this number, 0 or 128, and sums start from
//   `first_sum` or `first_score(sum of the query)`;
// - `fma`, `lane_bits` (one bit per lane of a mask), `store_bytes` (the low bytes of 16 integers);
// - `dot_weights` multiplies 8-bit inputs of a product; for `product_pairs.hpp`, `dot_unsigned` does;
// - `dot_keys` multiplies a signed query and signed keys;
// - `dot_values` multiplies unsigned attention weights and signed values.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "simd/inline.hpp"
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // GCC 12 warns of values that its own intrinsics of AVX512 leave undefined on purpose
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif

namespace dragoman {
namespace {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif
constexpr int kRegisters = 64 / kRegisterBytes;

typedef float FloatRegister __attribute__((vector_size(kRegisterBytes)));
typedef std::int32_t IntRegister __attribute__((vector_size(kRegisterBytes)));
typedef std::uint32_t UnsignedRegister __attribute__((vector_size(kRegisterBytes)));  // its sums may wrap
typedef std::int8_t ByteRegister __attribute__((vector_size(kRegisterBytes / 4)));

struct F32 {
  FloatRegister v[kRegisters];
};
struct I32 {
  IntRegister v[kRegisters];
};
// All bits of a lane are set, or none.
struct Mask {
  IntRegister v[kRegisters];
};
// The same four bytes for every lane.
struct Quad {
  IntRegister v;
};
// Four bytes per lane.
struct Bytes {
  IntRegister v[kRegisters];
};

// Applies f to the registers of its arguments.
template <class Result, class F, class... Lanes>
INLINE Result registers(F f, const Lanes&... x) {
  Result r;
  each<kRegisters>([&](auto i) INLINE_LAMBDA { r.v[i] = f(x.v[i]...); });
  return r;
}

#define DRAGOMAN_BINARY(name, Lanes, Result, expression)                                    \
  INLINE Result name(Lanes x, Lanes y) {                                                    \
    return registers<Result>([](auto a, auto b) INLINE_LAMBDA { return expression; }, x, y); \
  }
DRAGOMAN_BINARY(operator+, F32, F32, a + b)
DRAGOMAN_BINARY(operator-, F32, F32, a - b)
DRAGOMAN_BINARY(operator*, F32, F32, a * b)
DRAGOMAN_BINARY(operator/, F32, F32, a / b)
#if defined(__AVX512F__)
DRAGOMAN_BINARY(max, F32, F32, FloatRegister(_mm512_max_ps(a, b)))  // GCC 12 compares and blends
DRAGOMAN_BINARY(min, F32, F32, FloatRegister(_mm512_min_ps(a, b)))
#else
DRAGOMAN_BINARY(max, F32, F32, a > b ? a : b)  // NaN in the second stays, NaN in the first is lost
DRAGOMAN_BINARY(min, F32, F32, a < b ? a : b)
#endif
DRAGOMAN_BINARY(operator<, F32, Mask, a < b)
DRAGOMAN_BINARY(operator+, I32, I32, IntRegister(UnsignedRegister(a) + UnsignedRegister(b)))
DRAGOMAN_BINARY(operator-, I32, I32, IntRegister(UnsignedRegister(a) - UnsignedRegister(b)))
DRAGOMAN_BINARY(operator&, I32, I32, a & b)
DRAGOMAN_BINARY(operator|, I32, I32, a | b)
DRAGOMAN_BINARY(max, I32, I32, a > b ? a : b)
#undef DRAGOMAN_BINARY

INLINE I32 operator<<(I32 x, int n) {
  return registers<I32>([&](auto a) INLINE_LAMBDA { return IntRegister(UnsignedRegister(a) << n); }, x);
}
INLINE F32 to_float(I32 x) {
  return registers<F32>([](auto a) INLINE_LAMBDA { return __builtin_convertvector(a, FloatRegister); }, x);
}
INLINE I32 bits(F32 x) {
  return registers<I32>([](auto a) INLINE_LAMBDA { return IntRegister(a); }, x);
}
INLINE F32 from_bits(I32 x) {
  return registers<F32>([](auto a) INLINE_LAMBDA { return FloatRegister(a); }, x);
}
INLINE F32 select(Mask m, F32 x, F32 y) {
  return registers<F32>([](auto c, auto a, auto b) INLINE_LAMBDA { return c ? a : b; }, m, x, y);
}

INLINE IntRegister broadcast_register(std::int32_t x) { return x + IntRegister{}; }
INLINE F32 broadcast(float x) {
  return registers<F32>([&]() INLINE_LAMBDA { return x - FloatRegister{}; });
}
INLINE I32 broadcast(std::int32_t x) {
  return registers<I32>([&]() INLINE_LAMBDA { return broadcast_register(x); });
}
constexpr std::int32_t kSigns = INT32_MIN | 0x00808080;  // of four bytes

// Copies 64 bytes, register by register.
template <class Lanes>
INLINE Lanes load_registers(const void* p) {
  Lanes r;
  each<kRegisters>([&](auto i) INLINE_LAMBDA {
    std::memcpy(&r.v[i], static_cast<const char*>(p) + i * kRegisterBytes, kRegisterBytes);
  });
  return r;
}
template <class Lanes>
INLINE void store_registers(void* p, const Lanes& x) {
  each<kRegisters>([&](auto i) INLINE_LAMBDA {
    std::memcpy(static_cast<char*>(p) + i * kRegisterBytes, &x.v[i], kRegisterBytes);
  });
}
INLINE F32 load(const float* p) { return load_registers<F32>(p); }
INLINE I32 load(const std::int32_t* p) { return load_registers<I32>(p); }
INLINE Bytes load_bytes(const std::int8_t* p) { return load_registers<Bytes>(p); }
INLINE void store(float* p, F32 x) { store_registers(p, x); }
INLINE void store(std::int32_t* p, I32 x) { store_registers(p, x); }

// The first n lanes; those that are not loaded are zero.
INLINE std::size_t lane_bytes(long n) { return 4 * static_cast<std::size_t>(n < 16 ? n : 16); }
INLINE F32 load(const float* p, long n) {
  float all[16] = {};
  std::memcpy(all, p, lane_bytes(n));
  return load(all);
}
INLINE void store(float* p, F32 x, long n) {
  float all[16];
  store(all, x);
  std::memcpy(p, all, lane_bytes(n));
}
INLINE Bytes load_bytes(const std::int8_t* p, long n) {
  std::int8_t all[64] = {};
  std::memcpy(all, p, lane_bytes(n));
  return load_bytes(all);
}
INLINE Quad load_quad(const void* p) {
  std::int32_t four;
  std::memcpy(&four, p, sizeof four);
  return {broadcast_register(four)};
}
INLINE Mask first_lanes(long n) {
  constexpr std::int32_t kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const IntRegister count = broadcast_register(n < 16 ? static_cast<std::int32_t>(n) : 16);
  return registers<Mask>([&](auto lane) INLINE_LAMBDA { return lane < count; }, load(kLane));
}

// 16 signed bytes as integers.
INLINE I32 widen(const std::int8_t* p) {
  I32 r;
  each<kRegisters>([&](auto i) INLINE_LAMBDA {
    ByteRegister bytes;
    std::memcpy(&bytes, p + i * kRegisterBytes / 4, sizeof bytes);
    r.v[i] = __builtin_convertvector(bytes, IntRegister);
  });
  return r;
}

// Combines the lanes i and i + 8, then i + 4, i + 2 and i + 1.
template <class Register, class F, int... I>
INLINE auto fold(Register x, F f, std::integer_sequence<int, I...>) {
  constexpr int kHalf = sizeof...(I);
  if constexpr (kHalf == 2) {
    const auto two = f(x, __builtin_shufflevector(x, x, 2, 3, 2, 3));
    return f(two, __builtin_shufflevector(two, two, 1, 1, 1, 1))[0];
  } else {
    const auto half = f(__builtin_shufflevector(x, x, I...), __builtin_shufflevector(x, x, (I + kHalf)...));
    return fold(half, f, std::make_integer_sequence<int, kHalf / 2>{});
  }
}
template <class Lanes, class F>
INLINE auto reduce(const Lanes& x, F f) {
  auto v = x.v[0];
  if constexpr (kRegisters == 2) v = f(x.v[0], x.v[1]);
  if constexpr (kRegisters == 4) v = f(f(x.v[0], x.v[2]), f(x.v[1], x.v[3]));
  return fold(v, f, std::make_integer_sequence<int, kRegisterBytes / 8>{});
}
template <class Lanes>
INLINE auto reduce_max(const Lanes& x) {
  return reduce(x, [](auto a, auto b) INLINE_LAMBDA { return a > b ? a : b; });
}
template <class Lanes>
INLINE auto reduce_add(const Lanes& x) {
  return reduce(x, [](auto a, auto b) INLINE_LAMBDA { return a + b; });
}

}  // namespace
}  // namespace dragoman
