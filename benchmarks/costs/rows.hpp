// Rows of normal numbers as 8-bit inputs of products.
#pragma once

#include <random>
#include <vector>

#include "kernels/kernels.hpp"

// The first address in lines of the cache, where the engine's memory begins; there is room for a line more.
template <class T>
T* aligned(std::vector<T>& memory) {
  return reinterpret_cast<T*>((reinterpret_cast<std::size_t>(memory.data()) + 63) & ~std::size_t{63});
}

struct Rows {
  Rows(const dragoman::Kernels& kernels, dragoman::Index rows, dragoman::Index inputs)
      : bytes(static_cast<std::size_t>(rows * kernels.int8_stride(inputs) + 64)), scales(static_cast<std::size_t>(rows)) {
    std::normal_distribution<float> draw;
    std::vector<float> numbers(static_cast<std::size_t>(rows * inputs));
    std::mt19937 random;
    for (float& number : numbers) number = draw(random);
    integers = {aligned(bytes), scales.data(), kernels.int8_stride(inputs)};
    kernels.quantize({numbers.data(), inputs}, rows, inputs, integers);
  }
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;
  dragoman::Int8Rows integers;
};
