// Calls of kernels with vectors of exactly the right size, so that a sanitizer finds what lies beyond; and what several checks
// share: widths, names, and the 8-bit form of a row by scalar code.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "testing.hpp"

namespace testing {

using dragoman::Activation;
using dragoman::Attention;
using dragoman::BlockRange;
using dragoman::Candidate;
using dragoman::Choice;
using dragoman::Epilogue;
using dragoman::Heads;
using dragoman::Index;
using dragoman::Kernels;
using dragoman::kLanes;
using dragoman::kStrip;
using dragoman::Norm;
using dragoman::round_up;

using Floats = std::vector<float>;

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr Index kWidths[] = {1, 3, 4, 7, 15, 16, 17, 31, 33, 64, 70, 100, 130, 256, 515};

inline std::string name(const Kernels& kernels, const char* what, std::initializer_list<Index> sizes) {
  std::string text = std::string(kernels.name) + " " + what;
  for (Index size : sizes) text += " " + std::to_string(size);
  return text;
}

// The bits of a row's 8-bit form: integers and scale.
struct Quantized {
  std::vector<int> q;
  float scale;
};

inline Quantized quantized(const float* x, Index n) {
  float largest = 0.0f;
  for (Index i = 0; i < n; ++i)
    largest = std::isnan(x[i]) || std::isnan(largest) ? NAN : std::max(largest, std::fabs(x[i]));
  Quantized r{std::vector<int>(at(n)), std::isfinite(largest) ? largest / 127.0f : NAN};
  const float factor = std::isfinite(largest) && largest > 1e-36f ? 127.0f / largest : 0.0f;
  for (Index i = 0; i < n; ++i)
    if (std::isfinite(x[i])) r.q[at(i)] = static_cast<int>(std::nearbyint(x[i] * factor));
  return r;
}

// A matrix in 8 bits and in float, in the layouts of the kernels and plain: [N, K].
struct Matrix {
  Index outputs, inputs;
  std::vector<std::int8_t> plain_bytes, bytes;
  Floats plain_floats, floats, scale, bias;
  std::vector<std::int32_t> offset;

  Matrix(Random& random, Index n, Index k) : outputs(n), inputs(k) {
    const Index padded = round_up(n, 16), groups = round_up(k, 4) / 4;
    plain_bytes = random.bytes(n * k);
    plain_floats = random.numbers(n * k);
    bytes.resize(at(padded * groups * 4));
    floats.resize(at(padded * k));
    scale.resize(at(padded)), bias.resize(at(padded)), offset.resize(at(padded));
    for (Index o = 0; o < n; ++o) {
      scale[at(o)] = random.number() * 0.01f;
      bias[at(o)] = random.number();
      for (Index i = 0; i < k; ++i) {
        const std::int8_t q = plain_bytes[at(o * k + i)];
        bytes[at(((o / 16 * groups + i / 4) * 16 + o % 16) * 4 + i % 4)] = q;
        floats[at((o / 16 * k + i) * 16 + o % 16)] = plain_floats[at(o * k + i)];
        offset[at(o)] -= 128 * q;
      }
    }
  }
  Index padded() const { return round_up(outputs, 16); }
  dragoman::Int8Matrix int8() const {
    return {bytes.data(), scale.data(), offset.data(), bias.data(), outputs, inputs};
  }
  dragoman::FloatMatrix float32() const { return {floats.data(), bias.data(), outputs, inputs}; }
};

// y [rows, Np] of x [rows, K], quantized; blocks in parts of the given size.
inline Floats multiply_int8(const Kernels& kernels, const Matrix& w, const Floats& x, Index rows,
                            Epilogue epilogue = {}, Index part = 1 << 20) {
  const Index stride = kernels.int8_stride(w.inputs), blocks = w.padded() / kLanes;
  std::vector<std::uint8_t> bytes(at(rows * stride));
  Floats scales(at(rows)), y(at(rows * w.padded()), NAN);
  const dragoman::Int8Rows q{bytes.data(), scales.data(), stride};
  kernels.quantize({x.data(), w.inputs}, rows, w.inputs, q);
  const Epilogue whole = epilogue;
  for (Index b = 0; b < blocks; b += part) {
    if (whole.factor.data != nullptr) epilogue.factor.data = whole.factor.data + 16 * b;
    if (whole.residual.data != nullptr) epilogue.residual.data = whole.residual.data + 16 * b;
    kernels.multiply_int8(w.int8(), q, rows, {b, std::min(blocks, b + part)}, epilogue,
                          {y.data() + 16 * b, w.padded()});
  }
  return y;
}

inline Floats multiply_float(const Kernels& kernels, const Matrix& w, const Floats& x, Index rows,
                             Epilogue epilogue = {}, Index part = 1 << 20) {
  const Index blocks = w.padded() / kLanes;
  Floats y(at(rows * w.padded()), NAN);
  const Epilogue whole = epilogue;
  for (Index b = 0; b < blocks; b += part) {
    if (whole.factor.data != nullptr) epilogue.factor.data = whole.factor.data + 16 * b;
    if (whole.residual.data != nullptr) epilogue.residual.data = whole.residual.data + 16 * b;
    kernels.multiply_float(w.float32(), {x.data(), w.inputs}, rows, {b, std::min(blocks, b + part)}, epilogue,
                           {y.data() + 16 * b, w.padded()});
  }
  return y;
}

inline Floats normalize(const Kernels& kernels, const Norm& norm, const Floats& x, Index rows) {
  Floats y(x.size());
  kernels.normalize(norm, {x.data(), norm.width}, rows, {y.data(), norm.width});
  return y;
}

// Keys and values [T, H, D], and caches of both kinds that hold them.
struct Memory {
  Heads heads;
  Index length;
  Floats keys, values;
  std::vector<std::int8_t> bytes;
  Floats scales, floats;

  Memory(const Kernels& kernels, Random& random, Heads h, Index t, float size = 1.0f) : heads(h), length(t) {
    const Index width = h.count * h.size, blocks = (t + 15) / 16;
    keys = random.numbers(t * width, size), values = random.numbers(t * width, size);
    bytes.resize(at(blocks * byte_stride()));
    scales.resize(at(blocks * scale_stride()));
    floats.resize(at(blocks * float_stride()));
    for (Index i = 0; i < t; ++i) write(kernels, i);
  }
  Index byte_stride() const { return 2 * heads.count * 16 * round_up(heads.size, 4); }
  Index scale_stride() const { return 2 * heads.count * 16; }
  Index float_stride() const { return 2 * heads.count * 16 * heads.size; }
  dragoman::Int8Cache int8() { return {bytes.data(), scales.data(), byte_stride(), scale_stride()}; }
  dragoman::FloatCache float32() { return {floats.data(), float_stride()}; }
  void write(const Kernels& kernels, Index position) {
    const Index from = position * heads.count * heads.size;
    kernels.write_int8(heads, int8(), position, keys.data() + from, values.data() + from);
    kernels.write_float(heads, float32(), position, keys.data() + from, values.data() + from);
  }
};

struct Attended {
  Floats output;   // [H, D]
  Floats weights;  // [H, T]
};

inline Attended attend(const Kernels& kernels, Memory& memory, const Floats& query, Index length, bool int8,
                       bool weights = true) {
  const Heads heads = memory.heads;
  Attended r{Floats(at(heads.count * heads.size)), Floats(weights ? at(heads.count * length) : 0)};
  Floats scratch(at(dragoman::attention_scratch(heads, length)), NAN);
  float* wanted = weights ? r.weights.data() : nullptr;
  const Attention a{query.data(), length, r.output.data(), scratch.data(), wanted, length};
  if (int8)
    kernels.attend_int8(heads, memory.int8(), a);
  else
    kernels.attend_float(heads, memory.float32(), a);
  return r;
}

struct Chosen {
  float log_sum;
  Floats scores;
  std::vector<std::int64_t> ids;
};

// Strips are taken alternately by the lists of this many threads, and backward if wanted.
inline Chosen choose(const Kernels& kernels, const Floats& logits, Index count, Index lists = 1,
                     bool backward = false) {
  const Index vocabulary = static_cast<Index>(logits.size()), strips = dragoman::strip_count(vocabulary);
  Floats largest(at(strips)), sums(at(strips));
  std::vector<std::vector<Candidate>> best(at(lists), std::vector<Candidate>(at(count)));
  std::vector<Choice> choices;
  for (auto& list : best) choices.push_back({largest.data(), sums.data(), list.data(), count, 0});
  for (Index i = 0; i < strips; ++i) {
    const Index strip = backward ? strips - 1 - i : i;
    Floats part(logits.begin() + strip * kStrip, logits.begin() + std::min(vocabulary, (strip + 1) * kStrip));
    part.resize(at(kStrip), -std::numeric_limits<float>::infinity());
    kernels.choose_strip({part.data(), kStrip}, 1, strip, &choices[at(i % lists)]);
  }
  for (Index i = 1; i < lists; ++i) kernels.choose_merge(choices[0], best[at(i)].data(), choices[at(i)].filled);
  Chosen r{0, Floats(at(count)), std::vector<std::int64_t>(at(count))};
  r.log_sum = kernels.choose_finish(choices[0], vocabulary, r.scores.data(), r.ids.data());
  return r;
}

}  // namespace testing
