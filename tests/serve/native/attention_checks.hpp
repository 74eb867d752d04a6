// Checks of attention and of the caches that it reads, against attention in double.
#pragma once

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <string>
#include <vector>

#include "cases.hpp"

namespace testing {
namespace {

constexpr Index kHeadSizes[] = {5, 8, 12, 16, 20, 32, 40, 64, 80, 100, 128};

void test_cache_layout(const Kernels& kernels, Record& record) {
  Random random(9);
  for (Index size : kHeadSizes) {
    const Heads heads{3, size};
    const Index padded = round_up(size, 4), length = 21;
    Memory memory(kernels, random, heads, length);
    std::vector<std::int8_t> bytes(memory.bytes.size());
    Floats scales(memory.scales.size()), floats(memory.floats.size());
    for (Index t = 0; t < length; ++t)
      for (Index h = 0; h < 3; ++h) {
        const Quantized k = quantized(memory.keys.data() + (t * 3 + h) * size, size);
        const Quantized v = quantized(memory.values.data() + (t * 3 + h) * size, size);
        const Index block = t / 16, p = t % 16;
        scales[at(((block * 2 + 0) * 3 + h) * 16 + p)] = k.scale;
        scales[at(((block * 2 + 1) * 3 + h) * 16 + p)] = v.scale;
        for (Index i = 0; i < size; ++i) {
          const Index key = ((block * 2 + 0) * 3 + h) * 16, value = ((block * 2 + 1) * 3 + h) * 16;
          bytes[at(key * padded + (i / 4 * 16 + p) * 4 + i % 4)] = static_cast<std::int8_t>(k.q[at(i)]);
          bytes[at(value * padded + (p / 4 * padded + i) * 4 + p % 4)] = static_cast<std::int8_t>(v.q[at(i)]);
          floats[at(key * size + i * 16 + p)] = memory.keys[at((t * 3 + h) * size + i)];
          floats[at(value * size + p * size + i)] = memory.values[at((t * 3 + h) * size + i)];
        }
      }
    check(memory.bytes == bytes, name(kernels, "int8 cache", {size}));
    expect_same(memory.scales, scales, name(kernels, "scales of a cache", {size}));
    expect_same(memory.floats, floats, name(kernels, "float cache", {size}));
    const auto before = memory.bytes;
    for (Index t = length - 1; t >= 0; --t) memory.write(kernels, t);  // writing again changes nothing
    check(memory.bytes == before, name(kernels, "int8 cache written again", {size}));
    record.add(memory.bytes), record.add(memory.scales), record.add(memory.floats);
  }
}

// Attention in double, of the stored integers if `int8`.
struct ExactAttention {
  std::vector<double> output, weights;
};

ExactAttention exact_attention(const Memory& m, const Floats& query, Index length, bool int8) {
  const Index size = m.heads.size, count = m.heads.count;
  ExactAttention r;
  const auto number = [&](const Floats& x, Index row, Index i) {
    if (!int8) return static_cast<double>(x[at(row * size + i)]);
    const Quantized q = quantized(x.data() + row * size, size);
    return static_cast<double>(q.q[at(i)]) * q.scale;
  };
  for (Index h = 0; h < count; ++h) {
    std::vector<double> scores(at(length));
    std::vector<double> q;
    for (Index i = 0; i < size; ++i) q.push_back(number(query, h, i));
    for (Index t = 0; t < length; ++t) {
      for (Index i = 0; i < size; ++i) scores[at(t)] += q[at(i)] * number(m.keys, t * count + h, i);
      scores[at(t)] /= std::sqrt(static_cast<double>(size));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& s : scores) sum += s = std::exp(s - top);
    for (double& s : scores) s /= sum;
    for (Index i = 0; i < size; ++i) {
      double value = 0.0;
      for (Index t = 0; t < length; ++t) value += scores[at(t)] * number(m.values, t * count + h, i);
      r.output.push_back(value);
    }
    r.weights.insert(r.weights.end(), scores.begin(), scores.end());
  }
  return r;
}

void check_attention(const Kernels& kernels, Memory& memory, const Floats& query, Index length, Record& record) {
  for (bool int8 : {false, true}) {
    const Attended got = attend(kernels, memory, query, length, int8);
    const ExactAttention wanted = exact_attention(memory, query, length, int8);
    const std::string text = name(kernels, int8 ? "int8 attention" : "float attention", {memory.heads.size, length});
    expect_near(got.weights, wanted.weights, 2e-6, text + ", weights");
    // Each of T weights is off by half of 1/255 of the largest.
    expect_near(got.output, wanted.output, int8 ? 0.004 * static_cast<double>(std::min<Index>(length, 8)) : 4e-6, text);
    expect_same(attend(kernels, memory, query, length, int8, false).output, got.output, text + ", without weights");
    record.add(got.output), record.add(got.weights);
  }
}

void test_attention(const Kernels& kernels, Record& record) {
  Random random(10);
  for (Index size : kHeadSizes) {
    const Index heads = size % 32 == 0 ? 8 : 3;  // a multiple of four, and not
    Memory memory(kernels, random, {heads, size}, 100, 1.5f);
    const Floats query = random.numbers(heads * size, 1.5f);
    for (Index length : {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 48, 63, 65, 100})
      check_attention(kernels, memory, query, length, record);
  }
  Memory memory(kernels, random, {4, 24}, 100, 2.0f);
  for (Index length = 1; length <= 100; ++length)
    check_attention(kernels, memory, random.numbers(96, 2.0f), length, record);
}

// What lies beyond the length may be anything.
void test_attention_beyond(const Kernels& kernels, Record&) {
  Random random(11);
  for (Index size : {8, 20, 64}) {
    Memory memory(kernels, random, {2, size}, 48);
    const Floats query = random.numbers(2 * size);
    for (Index length : {1, 13, 16, 30}) {
      Memory other = memory;
      for (Index t = length; t < 48; ++t) {
        std::fill_n(other.keys.begin() + t * 2 * size, 2 * size, NAN);
        std::fill_n(other.values.begin() + t * 2 * size, 2 * size, kInf);
        other.write(kernels, t);
      }
      for (bool int8 : {false, true}) {
        const Attended wanted = attend(kernels, memory, query, length, int8);
        const Attended got = attend(kernels, other, query, length, int8);
        expect_same(got.output, wanted.output, name(kernels, "attention beyond the length", {size, length, int8}));
        expect_same(got.weights, wanted.weights, name(kernels, "weights beyond the length", {size, length, int8}));
      }
    }
  }
}

// A denormal number takes some processors much longer. What lies beyond the length must make none.
void test_denormals(const Kernels& kernels, Record&) {
  Random random(15);
  Memory memory(kernels, random, {4, 32}, 48);
  const Floats query = random.numbers(4 * 32);
  for (Index length : {1, 13, 16, 30})
    for (bool int8 : {false, true}) {
      std::feclearexcept(FE_ALL_EXCEPT);
      attend(kernels, memory, query, length, int8);
      check(std::fetestexcept(FE_UNDERFLOW) == 0, name(kernels, "attention without underflow", {length, int8}));
    }
}

// NaN in a query, key or value of one head spoils that head; infinity does in 8 bits, since no scale holds it.
void test_attention_of_nan(const Kernels& kernels, Record& record) {
  Random random(12);
  const Index size = 32, length = 19;
  for (float bad : {static_cast<float>(NAN), kInf})
    for (int part = 0; part < 3; ++part) {
      Memory memory(kernels, random, {2, size}, length);
      Floats query = random.numbers(2 * size);
      Floats& spoiled_part = part == 0 ? query : part == 1 ? memory.keys : memory.values;
      spoiled_part[at(part == 0 ? size + 3 : (18 * 2 + 1) * size + 3)] = bad;
      memory.write(kernels, 18);
      for (bool int8 : {false, true}) {
        const Attended got = attend(kernels, memory, query, length, int8);
        for (Index i = 0; i < 2 * size; ++i) {
          if (i < size) check(std::isfinite(got.output[at(i)]), name(kernels, "head without NaN", {part, i}));
          const bool spoiled = i >= size && (int8 || (std::isnan(bad) && (part < 2 || i == size + 3)));
          if (spoiled) check(!std::isfinite(got.output[at(i)]), name(kernels, "head with NaN", {part, int8, i}));
        }
        record.add(got.output);
      }
    }
}

}  // namespace
}  // namespace testing
