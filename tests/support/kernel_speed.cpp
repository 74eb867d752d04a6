// Prints the speed of 8-bit products as a share of what the multiplying instruction reaches in registers (AVX512-VNNI).
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "kernels/kernels.hpp"

using dragoman::Index;

template <class F>
double best_seconds(F f) {
  double best = 1e9;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const auto started = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  return best;
}

// Multiply-adds per nanosecond of 16 independent sums.
double peak() {
  constexpr long kLoops = 1000000;
  const double seconds = best_seconds([] {
    __m512i sums[16] = {}, x = _mm512_set1_epi32(0x01010101);
    for (long i = 0; i < kLoops; ++i)
      for (__m512i& sum : sums) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(x));
  });
  return 16.0 * 64 * kLoops / seconds / 1e9;
}

double speed(const dragoman::Kernels& kernels, Index inputs, Index outputs, Index rows) {
  const Index stride = dragoman::int8_stride(inputs);
  std::vector<std::int8_t> weight(static_cast<std::size_t>(inputs * outputs + 64), 1);
  std::vector<std::uint8_t> x(static_cast<std::size_t>(rows * stride), 1);
  std::vector<float> scale(static_cast<std::size_t>(outputs), 1.0f), scales(x.size(), 1.0f), bias(scale);
  std::vector<float> y(static_cast<std::size_t>(rows * outputs));
  std::vector<std::int32_t> offset(scale.size());
  auto* const aligned = reinterpret_cast<std::int8_t*>((reinterpret_cast<std::size_t>(weight.data()) + 63) & ~63ul);
  const dragoman::Int8Matrix matrix{aligned, scale.data(), offset.data(), bias.data(), outputs, inputs};
  const double products = static_cast<double>(inputs * outputs * rows);
  const int times = static_cast<int>(std::max(1.0, 1e9 / products));
  const double seconds = best_seconds([&] {
    for (int i = 0; i < times; ++i)
      kernels.multiply_int8(matrix, {x.data(), scales.data(), stride}, rows, {0, outputs / 16}, {},
                            {y.data(), outputs});
  });
  return products * times / seconds / 1e9;
}

int main() {
  const double most = peak();
  std::printf("one core, 10^9 multiply-adds/s: %.0f in registers\n", most);
  for (const auto& [inputs, outputs] : {std::pair{128, 384}, {256, 128}, {128, 4000}, {512, 512}, {512, 2048}, {2048, 512}}) {
    std::printf("%d x %d:", inputs, outputs);
    for (const Index rows : {1, 8, 32, 64, 128}) {
      const double found = speed(dragoman::kernels_for("avx512"), inputs, outputs, rows);
      std::printf("  %td rows %.0f (%.0f %%)", rows, found, 100 * found / most);
    }
    std::printf("\n");
  }
}
