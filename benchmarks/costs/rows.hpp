// Rows of normal numbers as 8-bit inputs of products. They begin with a line of the cache, as the engine's rows do.
#pragma once

#include <random>
#include <vector>

#include "kernels/kernels.hpp"

struct Rows {
  Rows(const dragoman::Kernels& kernels, dragoman::Index rows, dragoman::Index inputs)
      : bytes(static_cast<std::size_t>(rows * kernels.int8_stride(inputs) + 64)), scales(static_cast<std::size_t>(rows)) {
    std::normal_distribution<float> draw;
    std::vector<float> numbers(static_cast<std::size_t>(rows * inputs));
    std::mt19937 random;
    for (float& number : numbers) number = draw(random);
    integers = {bytes.data() + (64 - reinterpret_cast<std::size_t>(bytes.data()) % 64), scales.data(),
                kernels.int8_stride(inputs)};
    kernels.quantize({numbers.data(), inputs}, rows, inputs, integers);
  }
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;
  dragoman::Int8Rows integers;
};
