// Prints the speed of 8-bit products as a share of what the multiplying instruction reaches in registers: that of
// AVX512-VNNI, and that of AMX if the processor has it.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "simd/inline.hpp"

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
double vector_peak() {
  constexpr long kLoops = 100000;
  const double seconds = best_seconds([] {
    __m512i sums[16] = {}, x = _mm512_set1_epi32(0x01010101);
    for (long i = 0; i < kLoops; ++i)
      dragoman::each<16>(
          [&](auto j) INLINE_LAMBDA { __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(sums[j]) : "v"(x)); });
  });
  return 16.0 * 64 * kLoops / seconds / 1e9;
}

// The same of four tiles, which a process may use after `available_kernels`.
double tile_peak() {
  constexpr long kLoops = 100000;
  alignas(64) std::uint8_t shapes[64] = {1};
  for (int tile = 0; tile < 8; ++tile) shapes[16 + 2 * tile] = 64, shapes[48 + tile] = 16;
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
  const double seconds = best_seconds([] {
    for (long i = 0; i < kLoops; ++i)
      __asm__ volatile(
          "tdpbusd %tmm6, %tmm4, %tmm0\n tdpbusd %tmm7, %tmm4, %tmm1\n"
          "tdpbusd %tmm6, %tmm5, %tmm2\n tdpbusd %tmm7, %tmm5, %tmm3");
  });
  __asm__ volatile("tilerelease");
  return 4.0 * 16 * 16 * 64 * kLoops / seconds / 1e9;
}

// The first address in lines of the cache, where the engine's memory begins; there is room for a line more.
template <class T>
T* aligned(std::vector<T>& memory) {
  return reinterpret_cast<T*>((reinterpret_cast<std::size_t>(memory.data()) + 63) & ~std::size_t{63});
}

double speed(const dragoman::Kernels& kernels, Index inputs, Index outputs, Index rows) {
  const Index stride = dragoman::int8_stride(inputs);
  std::vector<std::int8_t> weight(static_cast<std::size_t>(inputs * outputs + 64), 1);
  std::vector<std::uint8_t> x(static_cast<std::size_t>(rows * stride + 64), 1);
  std::vector<float> scale(static_cast<std::size_t>(outputs), 1.0f), scales(x.size(), 1.0f), bias(scale);
  std::vector<float> y(static_cast<std::size_t>(rows * outputs + 16));
  std::vector<std::int32_t> offset(scale.size());
  const dragoman::Int8Matrix matrix{aligned(weight), scale.data(), offset.data(), bias.data(), outputs, inputs};
  const double products = static_cast<double>(inputs * outputs * rows);
  const int times = static_cast<int>(std::max(1.0, 1e9 / products));
  const double seconds = best_seconds([&] {
    for (int i = 0; i < times; ++i)
      kernels.multiply_int8(matrix, {aligned(x), scales.data(), stride}, rows, {0, outputs / 16}, {},
                            {aligned(y), outputs});
  });
  return products * times / seconds / 1e9;
}

int main() {
  constexpr std::pair<Index, Index> kSizes[] = {{128, 384}, {256, 128}, {128, 4000}, {512, 512}, {512, 2048}, {2048, 512}};
  for (const dragoman::Kernels* kernels : dragoman::available_kernels()) {
    const std::string name = kernels->name;
    if (name != "avx512" && name != "amx") continue;
    const double most = name == "amx" ? tile_peak() : vector_peak();
    std::printf("%s, one core, 10^9 multiply-adds/s: %.0f in registers\n", kernels->name, most);
    for (const auto& [inputs, outputs] : kSizes) {
      std::printf("%td x %td:", inputs, outputs);
      for (const Index rows : {1, 8, 32, 64, 128}) {
        const double found = speed(*kernels, inputs, outputs, rows);
        std::printf("  %td rows %.0f (%.0f %%)", rows, found, 100 * found / most);
      }
      std::printf("\n");
    }
  }
}
