// Prints the speed of 8-bit products of the chosen instruction set, and its share of that of their instructions alone.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "rows.hpp"

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

// Multiply-adds per nanosecond of instructions that have `products` of them.
#define DRAGOMAN_PEAK(products, instructions)                                                            \
  (products * 1e-4 / best_seconds([] {                                                                   \
     for (long i = 0; i < 100000; ++i)                                                                   \
       __asm__ volatile(instructions ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
                        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");           \
   }))

double avx2_peak() {
  return DRAGOMAN_PEAK(32 * 8, ".irp i, 0, 1, 2, 3, 4, 5, 6, 7\n vpmaddubsw %%ymm15, %%ymm14, %%ymm13\n"
                               "vpmaddwd %%ymm12, %%ymm13, %%ymm13\n vpaddd %%ymm13, %%ymm\\i, %%ymm\\i\n .endr");
}
double avx_vnni_peak() {
  return DRAGOMAN_PEAK(32 * 12, ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n%{vex%} vpdpbusd %%ymm15,%%ymm14,%%ymm\\i\n.endr");
}
double avx512_peak() {
  return DRAGOMAN_PEAK(64 * 12, ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\nvpdpbusd %%zmm15,%%zmm14,%%zmm\\i\n.endr");
}
// A process may use tiles after `available_kernels`.
double amx_peak() {
  alignas(64) std::uint8_t shapes[64] = {1};
  for (int tile = 0; tile < 8; ++tile) shapes[16 + 2 * tile] = 64, shapes[48 + tile] = 16;
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
  const double peak = DRAGOMAN_PEAK(4 * 16 * 16 * 64,
                                    "tdpbusd %%tmm6, %%tmm4, %%tmm0\n tdpbusd %%tmm7, %%tmm4, %%tmm1\n"
                                    "tdpbusd %%tmm6, %%tmm5, %%tmm2\n tdpbusd %%tmm7, %%tmm5, %%tmm3");
  __asm__ volatile("tilerelease");
  return peak;
}

double speed(const dragoman::Kernels& kernels, Index inputs, Index outputs, Index rows) {
  Rows x(kernels, rows, inputs);
  std::vector<std::int8_t> weight(static_cast<std::size_t>(inputs * outputs + 64), 1);
  std::vector<float> scale(static_cast<std::size_t>(outputs), 1.0f), bias(scale);
  std::vector<float> y(static_cast<std::size_t>(rows * outputs + 16));
  std::vector<std::int32_t> offset(scale.size());
  const dragoman::Int8Matrix matrix{aligned(weight), scale.data(), offset.data(), bias.data(), outputs, inputs};
  const double products = static_cast<double>(inputs * outputs * rows);
  const int times = static_cast<int>(std::max(1.0, 1e9 / products));
  const double seconds = best_seconds([&] {
    for (int i = 0; i < times; ++i)
      kernels.multiply_int8(matrix, x.integers, rows, {0, outputs / 16}, {}, {aligned(y), outputs});
  });
  return products * times / seconds / 1e9;
}

int main() {
  constexpr std::pair<Index, Index> kSizes[] = {{128, 384}, {256, 128}, {128, 4000}, {512, 512}, {512, 2048}, {2048, 512}};
  const std::pair<std::string_view, double (*)()> peaks[] = {
      {"avx2", avx2_peak}, {"avx-vnni", avx_vnni_peak}, {"avx512", avx512_peak}, {"amx", amx_peak}};
  const dragoman::Kernels& kernels = dragoman::chosen_kernels();
  double most = 0;
  for (const auto& [name, peak] : peaks)
    if (name == kernels.name) most = peak();
  std::printf("%s, one core, 10^9 multiply-adds/s: %.0f in registers\n", kernels.name, most);
  for (const auto& [inputs, outputs] : kSizes) {
    std::printf("%td x %td:", inputs, outputs);
    for (const Index rows : {1, 8, 32, 64, 128}) {
      const double found = speed(kernels, inputs, outputs, rows);
      std::printf("  %td rows %.0f (%.0f %%)", rows, found, 100 * found / most);
    }
    std::printf("\n");
  }
}
