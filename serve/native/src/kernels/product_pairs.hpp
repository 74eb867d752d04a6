// Products in 8 bits by an instruction that multiplies unsigned with signed bytes and adds two products in 16 bits, where
// sums may saturate.
//
// Weights plus 128 are unsigned, so products need no magnitudes and signs. The sum of two products fits if the magnitude of
// the sum of their inputs is at most 128: 128 * 255 < 2^15. Quantization spills the second input of each other pair: it puts
// zero in its place, and a list of such inputs behind the row. A tile multiplies them apart.
#pragma once

#include "kernels/product.hpp"

#if defined(DRAGOMAN_PAIRS)

namespace dragoman {
namespace {

// The second inputs of one or two pairs, zero in place of the others, and where in a block their weights begin.
struct Spill {
  std::int32_t weight;
  std::int32_t inputs;
};

// Lies behind the bytes of a row.
struct RowTail {
  std::int32_t first_sum;  // -128 * sum of all inputs
  std::int32_t spill_count;
  Spill spills[1];  // and further ones
};

INLINE RowTail& tail(const std::uint8_t* row, Index inputs) {
  return *reinterpret_cast<RowTail*>(const_cast<std::uint8_t*>(row) + round_up(inputs, 64));
}

// Each group of four inputs may spill.
Index int8_stride(Index inputs) { return 3 * round_up(inputs, 64) + 64; }

void spill_pairs(std::uint8_t* row, Index inputs) {
  const Index end = round_up(inputs, 64), written = round_up(inputs, kLanes);
  std::memset(row + written, 0, static_cast<std::size_t>(end - written));
  RowTail& to = tail(row, inputs);
  Spill* next = to.spills;
  I32 sum = broadcast(std::int32_t{0});
  for (Index i = 0; i < end; i += 64) {
    const I32 bytes = load_registers<I32>(row + i);
    I32 spilled;
    each<kRegisters>([&](auto v) INLINE_LAMBDA {
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), __m256i(bytes.v[v]));
      sum.v[v] += IntRegister(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      const __m256i large = _mm256_cmpgt_epi16(_mm256_abs_epi16(pairs), _mm256_set1_epi16(128));
      spilled.v[v] = bytes.v[v] & IntRegister(_mm256_slli_epi16(large, 8));
    });
    unsigned lanes = lane_bits(registers<Mask>([](auto four) INLINE_LAMBDA { return four != 0; }, spilled));
    if (lanes == 0) continue;
    store_registers(row + i, bytes - spilled);
    std::int32_t all[kLanes];
    for (store(all, spilled); lanes != 0; lanes &= lanes - 1) {
      const int lane = __builtin_ctz(lanes);
      *next++ = {static_cast<std::int32_t>(16 * i + 64 * lane), all[lane]};
    }
  }
  to.spill_count = static_cast<std::int32_t>(next - to.spills);
  to.first_sum = -128 * reduce_add(sum);
}

void quantize(FloatRows x, Index rows, Index inputs, Int8Rows out) {
  quantize_bytes(x, rows, inputs, out);
  for (Index r = 0; r < rows; ++r) spill_pairs(out.data + r * out.stride, inputs);
}

template <int R, int B>
void compute_tile(const Int8Operands& in, const TileOutput& out) {
  const PairConstants constants;
  const std::uint8_t* x[R];
  const std::int8_t* w = in.w;
  const Index groups = in.groups, block = groups * 64, ahead = in.later - w;
  I32 sum[R * B];
  each<R>([&](auto r) INLINE_LAMBDA {
    x[r] = in.x + r * in.stride;
    each<B>([&](auto b) INLINE_LAMBDA { sum[r * B + b] = broadcast(tail(x[r], 4 * groups).first_sum); });
  });
  const auto add = [&](auto r, const void* inputs, const Bytes (&weights)[B]) INLINE_LAMBDA {
    const Quad four = load_quad(inputs);
    each<B>([&](auto b) INLINE_LAMBDA { sum[r * B + b] = dot_unsigned(sum[r * B + b], four, weights[b], constants); });
  };
  const auto load_weights = [&](Bytes (&weights)[B], const std::int8_t* from) INLINE_LAMBDA {
    each<B>([&](auto b) INLINE_LAMBDA { weights[b] = plus_128(load_bytes(from + b * block), constants); });
  };
  Bytes weights[B];
#pragma GCC unroll 2
  for (Index g = 0; g < groups; ++g, w += 64) {
    load_weights(weights, w);
    if constexpr (fetches(R, kInt8TileRows)) __builtin_prefetch(w + ahead, 0, 2);
    each<R>([&](auto r) INLINE_LAMBDA { add(r, x[r] + 4 * g, weights); });
  }
  // At last, when the weights are in the cache.
  each<R>([&](auto r) INLINE_LAMBDA {
    const RowTail& of_row = tail(x[r], 4 * groups);
    for (const Spill *s = of_row.spills, *end = s + of_row.spill_count; s != end; ++s) {
      load_weights(weights, in.w + s->weight);
      add(r, &s->inputs, weights);
    }
  });
  store_products<R, B>(in, out, [&](auto r, auto b) INLINE_LAMBDA { return sum[r * B + b]; });
}

}  // namespace
}  // namespace dragoman

#endif
