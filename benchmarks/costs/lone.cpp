// Prints the milliseconds that a lone sentence of the small model takes at least: the fastest of some whose weights are
// read, or multiplied with 15 source tokens and in 15 steps, by one thread and by two, and nothing else is done.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "rows.hpp"

using namespace dragoman;
using Sizes = std::vector<std::pair<Index, Index>>;  // outputs and inputs of matrices
const Sizes encoder_layer{{384, 128}, {128, 128}, {256, 128}, {128, 256}, {256, 128}};  // the last is for the decoder
const Sizes decoder_layer{{384, 128}, {128, 128}, {128, 128}, {128, 128}, {256, 128}, {128, 256}};
alignas(64) std::int8_t weights[std::size_t{4} << 20];
const std::vector<float> scales(12000, 0.01f);  // and biases
const std::vector<std::int32_t> offsets(12000, 0);
const Kernels& kernels = chosen_kernels();
std::atomic<Index> arrived{0};

void read(const std::int8_t* bytes, Index count) {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  Words a{}, b{};
  for (const auto* word = reinterpret_cast<const Words*>(bytes); count > 0; count -= 64, word += 4)
    a += word[0] + word[1], b += word[2] + word[3];
  __asm__ volatile("" ::"x"(a + b));  // without a use of the sums, the compiler drops the reads
}

// What one of the threads does: its part of each matrix. Then it waits actively for the other one.
double fastest_ms(Index thread, Index threads, bool multiplies) {
  Rows narrow(kernels, 15, 128), wide(kernels, 15, 256);
  std::vector<float> y(12000);
  double fastest = 1e9;
  Index meetings = 0;
  for (int sentence = 0; sentence < 200; ++sentence) {
    const auto started = std::chrono::steady_clock::now();
    const std::int8_t* weight = weights;
    const auto take = [&](const Sizes& sizes, Index rows) {
      for (const auto& [outputs, inputs] : sizes) {
        const Index blocks = outputs / kLanes, first = thread * blocks / threads, last = (thread + 1) * blocks / threads;
        const Int8Matrix w{weight, scales.data(), offsets.data(), scales.data(), outputs, inputs};
        const Int8Rows x = (inputs == 128 ? narrow : wide).integers;
        if (multiplies) kernels.multiply_int8(w, x, rows, {first, last}, {}, {y.data(), outputs});
        else read(weight + first * kLanes * inputs, (last - first) * kLanes * inputs);
        weight += outputs * inputs;
        for (++arrived, meetings += threads; arrived < meetings;) __builtin_ia32_pause();
      }
    };
    for (int layer = 0; layer < 4; ++layer) take(encoder_layer, 15);
    for (int step = 0; step < 15; ++step) {
      weight = weights + (1 << 20);
      for (int layer = 0; layer < 4; ++layer) take(decoder_layer, 1);
      take({{12000, 128}}, 1);  // the vocabulary
    }
    fastest = std::min<double>(fastest, (std::chrono::steady_clock::now() - started) / std::chrono::nanoseconds(1) * 1e-6);
  }
  return fastest;
}

int main() {
  std::fill_n(weights, sizeof(weights), 1);  // pages that were never written share one page
  for (const bool multiplies : {false, true})
    for (const Index threads : {1, 2}) {
      arrived = 0;
      std::thread other([=] { return threads == 1 ? 0.0 : fastest_ms(1, 2, multiplies); });
      std::printf("%s by %td: %.3f\n", multiplies ? "multiplied" : "read", threads, fastest_ms(0, threads, multiplies));
      other.join();
    }
}
