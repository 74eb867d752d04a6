// Functions of 16 lanes with one sequence of operations for all instruction sets.
#pragma once

#include "kernels/kernels.hpp"
#include "simd/set.hpp"

namespace dragoman {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kNan = __builtin_nanf("");
// Adding it to a small float rounds that to an integer, ties to even, which the low bits of the sum hold.
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
constexpr std::int32_t kRounderBits = 0x4b400000;

INLINE float bits_to_float(std::int32_t x) {
  float r;
  std::memcpy(&r, &x, sizeof r);
  return r;
}

INLINE Index smaller(Index a, Index b) { return a < b ? a : b; }

// Calls f(i, n) for each vector of a row: it begins at i and has n lanes, 16 but for the last.
template <class F>
INLINE void for_lanes(Index width, F f) {
  for (Index i = 0; i < width; i += kLanes) f(i, smaller(kLanes, width - i));
}

// Calls f(first, together) for all rows, four at a time and then one.
template <class F>
INLINE void with_rows(Index rows, F f) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) f(r, Constant<4>{});
  for (; r < rows; ++r) f(r, Constant<1>{});
}

INLINE F32 load_some(const float* p, Index n) { return n == kLanes ? load(p) : load(p, n); }
INLINE void store_some(float* p, F32 a, Index n) { n == kLanes ? store(p, a) : store(p, a, n); }

// Horner's scheme, from the coefficient of the highest power to that of x^0.
template <int N>
INLINE F32 polynomial(F32 x, const float (&coefficients)[N]) {
  F32 p = broadcast(coefficients[0]);
  each<N - 1>([&](auto i) INLINE_LAMBDA { p = fma(p, x, broadcast(coefficients[i + 1])); });
  return p;
}

// e^x for x up to 88, 0 below -87.3; NaN stays NaN. Polynomial of Cephes, error about 1 ulp.
INLINE F32 exp(F32 x) {
  const F32 shifted = fma(x, broadcast(1.44269504f), broadcast(kRounder));
  const F32 n = shifted - broadcast(kRounder);
  F32 r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  F32 p = polynomial(r, {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                         5.0000001201e-1f});
  p = fma(p, r * r, r + broadcast(1.0f));
  const F32 power = from_bits((bits(shifted) << 23) + broadcast(0x3f800000));  // 2^n
  return select(x < broadcast(-87.3f), broadcast(0.0f), p * power);
}

// e^x for x up to 0, for sums that e^0 dominates: the error grows to 1e-6 at -20, and below -86.6 it is e^-86.6.
// NaN stays NaN.
INLINE F32 softmax_exp(F32 x) {
  const F32 t = max(broadcast(-125.0f), x * broadcast(1.44269504f));
  const F32 shifted = t + broadcast(kRounder);
  const F32 r = t - (shifted - broadcast(kRounder));
  const F32 p = polynomial(r, {1.326472731e-3f, 9.671512991e-3f, 5.550733581e-2f, 2.402224243e-1f, 6.931470037e-1f,
                               1.0f});
  return from_bits(bits(p) + (bits(shifted) << 23));
}

// The natural logarithm of a positive, normal number. Polynomial of Cephes.
INLINE float log(float x) {
  std::int32_t b;
  std::memcpy(&b, &x, sizeof b);
  const std::int32_t exponent = (b - 0x3f3504f3) >> 23;  // the mantissa lies between sqrt(1/2) and sqrt(2)
  const float e = static_cast<float>(exponent);
  const float m = bits_to_float(b - exponent * (1 << 23)) - 1.0f;
  const float coefficients[] = {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                                -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
  float p = 7.0376836292e-2f;
  for (float c : coefficients) p = __builtin_fmaf(p, m, c);
  const float square = m * m;
  p = p * m * square;
  p = __builtin_fmaf(e, -2.12194440e-4f, p);
  p = __builtin_fmaf(square, -0.5f, p);
  return __builtin_fmaf(e, 0.693359375f, m + p);
}

// The error function in two pieces, after N. Juffa; error about 1 ulp.
INLINE F32 erf(F32 x) {
  const F32 t = from_bits(bits(x) & broadcast(0x7fffffff)), s = x * x;
  F32 a = fma(broadcast(-1.72853470e-5f), t, broadcast(3.83197126e-4f));
  const F32 b = fma(broadcast(-3.88396438e-3f), t, broadcast(2.42546219e-2f));
  a = fma(a, s, b);
  a = fma(a, t, broadcast(-1.06777877e-1f));
  a = fma(a, t, broadcast(-6.34846687e-1f));
  a = fma(a, t, broadcast(-1.28717512e-1f));
  a = fma(a, t, broadcast(0.0f) - t);
  a = broadcast(1.0f) - exp(a);
  a = from_bits(bits(a) | (bits(x) & broadcast(INT32_MIN)));
  F32 c = polynomial(s, {-5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f, -3.76125336e-1f,
                         1.28379166e-1f});
  c = fma(c, x, x);
  return select(broadcast(0.927734375f) < t, a, c);
}

// 1 / (1 + e^-x). Beyond -80 and 80 it is theirs: a denormal number takes some processors much longer.
INLINE F32 sigmoid(F32 x) {
  const F32 t = max(broadcast(-80.0f), min(broadcast(80.0f), broadcast(0.0f) - x));
  return broadcast(1.0f) / (broadcast(1.0f) + exp(t));
}

INLINE F32 activate(Activation activation, F32 x) {
  switch (activation) {
    case Activation::kRelu:
      return max(broadcast(0.0f), x);
    case Activation::kGelu:
      return x * fma(erf(x * broadcast(0.707106781f)), broadcast(0.5f), broadcast(0.5f));
    case Activation::kSilu:
      return x / (broadcast(1.0f) + exp(min(broadcast(88.0f), broadcast(0.0f) - x)));
    case Activation::kNone:
      break;
  }
  return x;
}

// The low byte is that of the integer next to x (at most 2^22), ties to even; any byte if x is NaN.
INLINE I32 round_to_byte(F32 x) { return bits(x + broadcast(kRounder)); }

// The bits of the largest |x|; the bits of NaN are larger than those of any number.
INLINE I32 max_bits(I32 largest, F32 x) { return max(largest, bits(x) & broadcast(0x7fffffff)); }

INLINE I32 max_bits(const float* x, Index count) {
  I32 largest = broadcast(std::int32_t{0});
  for_lanes(count, [&](Index i, Index n) INLINE_LAMBDA { largest = max_bits(largest, load_some(x + i, n)); });
  return largest;
}

// How numbers become integers of at most `limit`: integer = round(number * factor), number = integer * scale.
// Numbers next to zero become zero; infinity and NaN give the scale NaN.
struct Scaling {
  float factor;
  float scale;
};
INLINE Scaling scaling(I32 largest_bits, float limit) {
  const float largest = bits_to_float(reduce_max(largest_bits));
  if (!(largest < kInfinity)) return {0.0f, kNan};
  return {largest > 1e-36f ? limit / largest : 0.0f, largest / limit};
}

}  // namespace
}  // namespace dragoman
