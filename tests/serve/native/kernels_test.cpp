// Compares the kernels of every instruction set with obvious scalar code and with one another.
//
// Prints a digest of all that the kernels computed: machines compare it. Exits with 1 if a check failed.
#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "cases.hpp"

#ifdef DRAGOMAN_TEST_AVX_VNNI
namespace dragoman::avx_vnni {
extern const Kernels kKernels;
}
#endif

namespace testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Index kHeadSizes[] = {5, 8, 12, 16, 20, 32, 40, 64, 80, 100, 128};
constexpr Index kWidths[] = {1, 3, 4, 7, 15, 16, 17, 31, 33, 64, 70, 100, 130, 256, 515};

std::string name(const Kernels& kernels, const char* what, std::initializer_list<Index> sizes) {
  std::string text = std::string(kernels.name) + " " + what;
  for (Index size : sizes) text += " " + std::to_string(size);
  return text;
}

// The bits of a row's 8-bit form: integers and scale.
struct Quantized {
  std::vector<int> q;
  float scale;
};

Quantized quantized(const float* x, Index n) {
  float largest = 0.0f;
  for (Index i = 0; i < n; ++i)
    largest = std::isnan(x[i]) || std::isnan(largest) ? NAN : std::max(largest, std::fabs(x[i]));
  Quantized r{std::vector<int>(at(n)), std::isfinite(largest) ? largest / 127.0f : NAN};
  const float factor = std::isfinite(largest) && largest > 1e-36f ? 127.0f / largest : 0.0f;
  for (Index i = 0; i < n; ++i)
    if (std::isfinite(x[i])) r.q[at(i)] = static_cast<int>(std::nearbyint(x[i] * factor));
  return r;
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kGelu: return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
    case Activation::kNone: break;
  }
  return x;
}

Floats products_int8(const Matrix& w, const Floats& x, Index rows) {
  Floats y(at(rows * w.padded()));
  for (Index r = 0; r < rows; ++r) {
    const Quantized row = quantized(x.data() + r * w.inputs, w.inputs);
    for (Index o = 0; o < w.outputs; ++o) {
      int sum = 0;
      for (Index i = 0; i < w.inputs; ++i) sum += row.q[at(i)] * w.plain_bytes[at(o * w.inputs + i)];
      y[at(r * w.padded() + o)] = std::fma(static_cast<float>(sum), row.scale * w.scale[at(o)], w.bias[at(o)]);
    }
  }
  return y;
}

Floats products_float(const Matrix& w, const Floats& x, Index rows) {
  Floats y(at(rows * w.padded()));
  for (Index r = 0; r < rows; ++r)
    for (Index o = 0; o < w.outputs; ++o) {
      float sum = w.bias[at(o)];
      for (Index i = 0; i < w.inputs; ++i)
        sum = std::fma(x[at(r * w.inputs + i)], w.plain_floats[at(o * w.inputs + i)], sum);
      y[at(r * w.padded() + o)] = sum;
    }
  return y;
}

void test_products(const Kernels& kernels, Record& record) {
  Random random(1);
  for (Index rows = 1; rows <= 70; ++rows) {
    const Index n = kWidths[at(random.below(15))];
    const Index k = rows % 2 == 0 ? kWidths[at(random.below(15))] : 64 * (1 + static_cast<Index>(random.below(4)));
    const Matrix w(random, n, k);
    const Floats x = random.numbers(rows * k, 3.0f);
    const Floats integers = multiply_int8(kernels, w, x, rows), floats = multiply_float(kernels, w, x, rows);
    expect_same(integers, products_int8(w, x, rows), name(kernels, "int8 product", {rows, n, k}));
    expect_same(floats, products_float(w, x, rows), name(kernels, "float product", {rows, n, k}));
    for (Index part : {1, 3, 4}) {
      expect_same(multiply_int8(kernels, w, x, rows, {}, part), integers, name(kernels, "int8 blocks", {rows, n, k}));
      expect_same(multiply_float(kernels, w, x, rows, {}, part), floats, name(kernels, "float blocks", {rows, n, k}));
    }
    record.add(integers), record.add(floats);
  }
}

// The largest inputs and weights: sums of 16 bits would saturate.
void test_extreme_products(const Kernels& kernels, Record& record) {
  for (int sign : {-1, 1})
    for (Index k : {4, 64, 515, 4096}) {
      Random random(2);
      Matrix w(random, 80, k);
      const auto largest = static_cast<std::int8_t>(127 * sign);
      std::fill(w.plain_bytes.begin(), w.plain_bytes.end(), largest);
      for (Index o = 0; o < 80; ++o) {
        w.offset[at(o)] = static_cast<std::int32_t>(-128 * 127 * sign * k);
        for (Index i = 0; i < k; ++i)
          w.bytes[at(((o / 16 * ((k + 3) / 4) + i / 4) * 16 + o % 16) * 4 + i % 4)] = largest;
      }
      for (Index rows : {1, 2, 5, 33}) {
        const Floats x(at(rows * k), 1.5f), y = multiply_int8(kernels, w, x, rows);
        expect_same(y, products_int8(w, x, rows), name(kernels, "extreme product", {rows, k}));
        record.add(y);
      }
    }
}

void test_rows_alone(const Kernels& kernels, Record&) {
  Random random(3);
  const Matrix w(random, 150, 90);
  const Floats x = random.numbers(70 * 90);
  const Floats integers = multiply_int8(kernels, w, x, 70), floats = multiply_float(kernels, w, x, 70);
  for (Index r = 0; r < 70; ++r) {
    const Floats one(x.begin() + r * 90, x.begin() + (r + 1) * 90);
    const auto row = [&](const Floats& y) { return Floats(y.begin() + r * 160, y.begin() + (r + 1) * 160); };
    expect_same(multiply_int8(kernels, w, one, 1), row(integers), name(kernels, "int8 row alone", {r}));
    expect_same(multiply_float(kernels, w, one, 1), row(floats), name(kernels, "float row alone", {r}));
  }
}

void test_epilogues_of(const Kernels& kernels, Record& record, Index rows, Index inputs) {
  Random random(4);
  const Index n = 75;
  const Matrix w(random, n, inputs);
  const Floats x = random.numbers(rows * inputs, 8.0f);
  const Floats plain = multiply_float(kernels, w, x, rows), integers = multiply_int8(kernels, w, x, rows);
  const Floats factor = random.numbers(rows * 80), residual = random.numbers(rows * 80);
  for (Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu})
    for (int parts = 0; parts < 4; ++parts) {
      Epilogue e;
      e.activation = activation;
      if (parts & 1) e.factor = {factor.data(), 80};
      if (parts & 2) e.residual = {residual.data(), 80};
      const auto wanted = [&](const Floats& y) {
        std::vector<double> r;
        for (std::size_t i = 0; i < y.size(); ++i)
          r.push_back(activated(activation, y[i]) * (parts & 1 ? factor[i] : 1.0f) + (parts & 2 ? residual[i] : 0.0f));
        return r;
      };
      for (Index part : {1, 5}) {
        const Floats f = multiply_float(kernels, w, x, rows, e, part), i = multiply_int8(kernels, w, x, rows, e, part);
        expect_near(f, wanted(plain), 2e-6, name(kernels, "float epilogue", {static_cast<Index>(activation), parts}));
        expect_near(i, wanted(integers), 2e-6, name(kernels, "int8 epilogue", {static_cast<Index>(activation), parts}));
        record.add(f), record.add(i);
      }
    }
  Epilogue e;
  e.residual = {residual.data(), 80};
  Floats state(residual);
  const Epilogue in_place{Activation::kNone, {nullptr, 0}, {state.data(), 80}};
  kernels.multiply_float(w.float32(), {x.data(), inputs}, rows, {0, 5}, in_place, {state.data(), 80});
  expect_same(state, multiply_float(kernels, w, x, rows, e), name(kernels, "residual in place", {rows}));
  state = residual;
  std::vector<std::uint8_t> bytes(at(rows * dragoman::int8_stride(inputs)));
  Floats scales(at(rows));
  const dragoman::Int8Rows q{bytes.data(), scales.data(), dragoman::int8_stride(inputs)};
  kernels.quantize({x.data(), inputs}, rows, inputs, q);
  kernels.multiply_int8(w.int8(), q, rows, {0, 5}, in_place, {state.data(), 80});
  expect_same(state, multiply_int8(kernels, w, x, rows, e), name(kernels, "int8 residual in place", {rows}));
}

void test_epilogues(const Kernels& kernels, Record& record) {
  test_epilogues_of(kernels, record, 7, 40);
  test_epilogues_of(kernels, record, 21, 128);
}

// A product with the identity shows the activations of chosen numbers.
Floats activations(const Kernels& kernels, const Floats& x, Activation activation) {
  Random random(5);
  Matrix w(random, 16, 1);
  std::fill(w.floats.begin(), w.floats.end(), 1.0f);
  std::fill(w.bias.begin(), w.bias.end(), -0.0f);
  Epilogue e;
  e.activation = activation;
  const Floats all = multiply_float(kernels, w, x, static_cast<Index>(x.size()), e);
  Floats y;
  for (std::size_t i = 0; i < all.size(); i += 16) y.push_back(all[i]);
  return y;
}

void test_activations(const Kernels& kernels, Record& record) {
  Floats x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) / 1000.0f);
  for (float size : {1e-30f, 1e-6f, 50.0f, 87.0f, 90.0f, 200.0f, 1e30f}) x.push_back(size), x.push_back(-size);
  for (Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    std::vector<double> wanted;
    for (float v : x) wanted.push_back(activated(activation, v));
    const Floats y = activations(kernels, x, activation);
    expect_near(y, wanted, 1.2e-6, name(kernels, "activation", {static_cast<Index>(activation)}));
    record.add(y);
    check(std::isnan(activations(kernels, {NAN}, activation)[0]), name(kernels, "activation of NaN", {}));
  }
}

void test_bad_rows(const Kernels& kernels, Record& record) {
  Random random(6);
  const Matrix w(random, 33, 50);
  const Floats good = random.numbers(9 * 50);
  const Floats wanted = multiply_int8(kernels, w, good, 9), wanted_float = multiply_float(kernels, w, good, 9);
  for (float bad : {static_cast<float>(NAN), kInf, -kInf})
    for (Index column : {0, 17, 49}) {
      Floats x = good;
      x[at(4 * 50 + column)] = bad;
      const Floats y = multiply_int8(kernels, w, x, 9), f = multiply_float(kernels, w, x, 9);
      for (Index i = 0; i < 9 * 48; ++i) {
        const bool spoiled = i / 48 == 4;
        check(spoiled ? std::isnan(y[at(i)]) : same(y[at(i)], wanted[at(i)]), name(kernels, "int8 bad row", {i}));
        if (!spoiled) check(same(f[at(i)], wanted_float[at(i)]), name(kernels, "float bad row", {i}));
      }
      record.add(y), record.add(f);
    }
  for (float tiny : {0.0f, -0.0f, 1e-45f, -1e-38f, 1e-37f, 1e-35f}) {  // no scale overflows
    Floats x(good);
    std::fill_n(x.begin() + 4 * 50, 50, tiny);
    const Floats y = multiply_int8(kernels, w, x, 9);
    expect_same(y, products_int8(w, x, 9), name(kernels, "tiny row", {}));
    record.add(y);
  }
}

void test_norms(const Kernels& kernels, Record& record) {
  Random random(7);
  for (Index width : kWidths)
    for (Index rows : {1, 2, 7}) {
      const Floats x = random.numbers(rows * width, 5.0f), gain = random.numbers(width), bias = random.numbers(width);
      for (Norm::Kind kind : {Norm::Kind::kLayer, Norm::Kind::kRms}) {
        const Norm norm{kind, gain.data(), kind == Norm::Kind::kLayer ? bias.data() : nullptr, width, 1e-5f};
        std::vector<double> wanted;
        for (Index r = 0; r < rows; ++r) {
          const float* row = x.data() + r * width;
          const double n = static_cast<double>(width);
          const double mean = kind == Norm::Kind::kRms ? 0.0 : std::accumulate(row, row + width, 0.0) / n;
          double squares = 0.0;
          for (Index i = 0; i < width; ++i) squares += (row[i] - mean) * (row[i] - mean);
          const double root = std::sqrt(squares / n + 1e-5f);
          for (Index i = 0; i < width; ++i)
            wanted.push_back((row[i] - mean) / root * gain[at(i)] + (norm.bias != nullptr ? bias[at(i)] : 0.0f));
        }
        const Floats y = normalize(kernels, norm, x, rows);
        if (width > 1) expect_near(y, wanted, 5e-6, name(kernels, "norm", {rows, width}));
        Floats in_place = x;
        kernels.normalize(norm, {in_place.data(), width}, rows, {in_place.data(), width});
        expect_same(in_place, y, name(kernels, "norm in place", {rows, width}));
        const Floats last(x.end() - width, x.end());
        expect_same(normalize(kernels, norm, last, 1), Floats(y.end() - width, y.end()),
                    name(kernels, "norm of a row alone", {rows, width}));
        record.add(y);
      }
    }
}

void test_embeddings(const Kernels& kernels, Record& record) {
  Random random(8);
  for (Index width : kWidths) {
    const Matrix table(random, 37, width);
    const Floats position = random.numbers(width);
    for (Index id : {0, 15, 16, 36}) {
      Floats y(at(width)), f(at(width)), wanted(at(width)), wanted_float(at(width));
      for (Index i = 0; i < width; ++i) {
        const float weight = static_cast<float>(table.plain_bytes[at(id * width + i)]) * table.scale[at(id)];
        wanted[at(i)] = std::fma(weight, 22.6f, position[at(i)]);
        wanted_float[at(i)] = std::fma(table.plain_floats[at(id * width + i)], 22.6f, position[at(i)]);
      }
      kernels.embed_int8(table.int8(), id, 22.6f, position.data(), y.data());
      kernels.embed_float(table.float32(), id, 22.6f, position.data(), f.data());
      expect_same(y, wanted, name(kernels, "int8 embedding", {width, id}));
      expect_same(f, wanted_float, name(kernels, "float embedding", {width, id}));
      record.add(y), record.add(f);
    }
  }
}

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

// Rows in slots 2 r + 1, of which every third begins. A gate may be so low that the state is forgotten.
void test_recurrent_units(const Kernels& kernels, Record& record) {
  Random random(16);
  for (Index width : kWidths)
    for (Index rows : {1, 3, 8}) {
      const Index stride = width + 5, slots = 2 * rows;
      const Floats x = random.numbers(rows * 2 * width, 4.0f), before = random.numbers(rows * width);
      Floats states = random.numbers(slots * stride), y = before;
      std::vector<std::int32_t> numbers, positions;
      for (Index r = 0; r < rows; ++r) {
        numbers.push_back(static_cast<std::int32_t>(2 * r + 1));
        positions.push_back(static_cast<std::int32_t>(r % 3));
        if (r % 3 == 0) std::fill_n(states.begin() + (2 * r + 1) * stride, width, NAN);
      }
      const Floats old = states;
      std::vector<double> wanted, wanted_states(old.begin(), old.end());
      for (Index r = 0; r < rows; ++r)
        for (Index i = 0; i < width; ++i) {
          const Index place = (2 * r + 1) * stride + i;
          const double f = 1.0 / (1.0 + std::exp(-static_cast<double>(x[at((2 * r + 1) * width + i)])));
          const double earlier = positions[at(r)] == 0 ? 0.0 : old[at(place)];
          const double state = f * earlier + (1.0 - f) * x[at(2 * r * width + i)];
          wanted_states[at(place)] = state;
          wanted.push_back(before[at(r * width + i)] + std::max(0.0, state));
        }
      kernels.recur({x.data(), 2 * width}, rows, width, {states.data(), stride, numbers.data(), positions.data()},
                    {y.data(), width});
      expect_near(y, wanted, 1e-6, name(kernels, "recurrent unit", {rows, width}));
      expect_near(states, wanted_states, 1e-6, name(kernels, "states", {rows, width}));
      for (Index r = 0; r < rows; ++r) {
        Floats alone = old, output(before.begin() + r * width, before.begin() + (r + 1) * width);
        kernels.recur({x.data() + 2 * r * width, 2 * width}, 1, width,
                      {alone.data(), stride, &numbers[at(r)], &positions[at(r)]}, {output.data(), width});
        expect_same(output, Floats(y.begin() + r * width, y.begin() + (r + 1) * width),
                    name(kernels, "recurrent unit alone", {rows, width, r}));
      }
      record.add(y), record.add(states);
    }
}

// NaN and infinity spoil their own unit; a large gate makes no denormal number.
void test_extreme_recurrent_units(const Kernels& kernels, Record& record) {
  const Floats gates = {NAN, 1.0f, kInf, -kInf, 1e30f, -1e30f, 100.0f, -100.0f, 0.0f};
  const Index width = static_cast<Index>(gates.size());
  Floats x(at(2 * width), 2.0f), states(at(width), 0.5f), y(at(width));
  std::copy(gates.begin(), gates.end(), x.begin() + width);
  x[1] = NAN;
  const std::int32_t slot = 0, position = 7;
  std::feclearexcept(FE_ALL_EXCEPT);
  kernels.recur({x.data(), 2 * width}, 1, width, {states.data(), width, &slot, &position}, {y.data(), width});
  check(std::fetestexcept(FE_UNDERFLOW) == 0, name(kernels, "recurrent unit without underflow", {}));
  check(std::isnan(y[0]) && std::isnan(y[1]), name(kernels, "recurrent unit of NaN", {}));
  expect_near(Floats(y.begin() + 2, y.end()), {0.5, 2.0, 0.5, 2.0, 0.5, 2.0, 1.25}, 1e-6,
              name(kernels, "extreme recurrent unit", {}));
  record.add(y), record.add(states);
}

Chosen chosen_by_sorting(const Floats& logits, Index count, float log_sum) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto better = [&](std::int64_t a, std::int64_t b) { return logits[at(a)] > logits[at(b)]; };
  std::stable_sort(ids.begin(), ids.end(), better);
  Chosen r{log_sum, {}, {}};
  for (Index i = 0; i < count; ++i) {
    r.ids.push_back(ids[at(i)]);
    r.scores.push_back(logits[at(ids[at(i)])] - log_sum);
  }
  return r;
}

void check_choice(const Kernels& kernels, const Floats& logits, Index count, Record& record) {
  const std::string text = name(kernels, "choice", {static_cast<Index>(logits.size()), count});
  const Chosen got = choose(kernels, logits, count);
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - top);
  expect_near({got.log_sum}, {top + std::log(sum)}, 5e-7, text + ", log-sum");
  const Chosen wanted = chosen_by_sorting(logits, count, got.log_sum);
  check(got.ids == wanted.ids, text + ", ids");
  expect_same(got.scores, wanted.scores, text + ", scores");
  for (Index lists : {1, 2, 3}) {
    const Chosen other = choose(kernels, logits, count, lists, lists != 2);
    check(other.ids == got.ids && same(other.log_sum, got.log_sum), text + ", other order of strips");
    expect_same(other.scores, got.scores, text + ", scores of another order of strips");
  }
  record.add(got.log_sum), record.add(got.scores), record.add(got.ids);
}

void test_choices(const Kernels& kernels, Record& record) {
  Random random(13);
  for (Index size : {1, 2, 15, 16, 17, 255, 256, 257, 1000, 5000})
    for (Index count : {0, 1, 2, 8, 40, 5000}) {
      if (count > size) count = size;
      Floats logits = random.numbers(size, 12.0f);
      check_choice(kernels, logits, count, record);
      for (float& x : logits) x = std::floor(x / 4.0f);  // many ties
      check_choice(kernels, logits, count, record);
      for (Index i = 0; i < size; ++i)
        if (i % 512 != 7 % size) logits[at(i)] = -kInf;  // whole strips without a token
      check_choice(kernels, logits, count, record);
      std::fill(logits.begin(), logits.end(), -30.5f);
      check_choice(kernels, logits, count, record);
    }
}

void test_bad_choices(const Kernels& kernels, Record& record) {
  Random random(14);
  for (Index size : {1, 20, 700})
    for (Index count : {Index{0}, Index{1}, std::min<Index>(size, 5), size})
      for (int kind = 0; kind < 4; ++kind)
        for (Index index : {Index{0}, size / 2, size - 1}) {
          Floats logits = random.numbers(size, 5.0f);
          if (kind == 2) std::fill(logits.begin(), logits.end(), -kInf);
          if (kind == 3) std::fill(logits.begin(), logits.end(), -kInf), logits[at(index)] = NAN;
          if (kind < 2) logits[at(index)] = kind == 0 ? static_cast<float>(NAN) : kInf;
          const Chosen got = choose(kernels, logits, count);
          bool right = std::isnan(got.log_sum);
          for (Index i = 0; i < count; ++i) right &= std::isnan(got.scores[at(i)]) && got.ids[at(i)] == i;
          check(right, name(kernels, "bad choice", {size, count, kind, index}));
          record.add(got.scores);
        }
}

void test_registry() {
  for (const Kernels* kernels : dragoman::available_kernels())
    check(&dragoman::kernels_for(kernels->name) == kernels, std::string(kernels->name) + " by name");
  bool thrown = false;
  try {
    dragoman::kernels_for("sse1");
  } catch (const std::runtime_error& error) {
    thrown = std::string(error.what()).find("portable") != std::string::npos;
  }
  check(thrown, "an unknown instruction set is an error that names the known ones");
  setenv("DRAGOMAN_INSTRUCTIONS", "portable", 1);
  check(std::string(dragoman::chosen_kernels().name) == "portable", "the environment variable chooses");
  setenv("DRAGOMAN_INSTRUCTIONS", "", 1);
  check(&dragoman::chosen_kernels() == dragoman::available_kernels().back(), "an empty variable chooses nothing");
}

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all = dragoman::available_kernels();
#ifdef DRAGOMAN_TEST_AVX_VNNI
  if (std::string(all.back()->name) == "avx512") all.push_back(&dragoman::avx_vnni::kKernels);
#endif
  return all;
}

int run() {
  const std::vector<std::pair<const char*, void (*)(const Kernels&, Record&)>> tests = {
      {"products", test_products},         {"extreme products", test_extreme_products},
      {"rows alone", test_rows_alone},     {"epilogues", test_epilogues},
      {"activations", test_activations},   {"bad rows", test_bad_rows},
      {"norms", test_norms},               {"embeddings", test_embeddings},
      {"cache layout", test_cache_layout}, {"attention", test_attention},
      {"beyond", test_attention_beyond},   {"attention of NaN", test_attention_of_nan},
      {"denormals", test_denormals},       {"choices", test_choices},
      {"bad choices", test_bad_choices},   {"recurrent units", test_recurrent_units},
      {"extreme units", test_extreme_recurrent_units},
  };
  test_registry();
  for (const auto& [title, test] : tests) {
    std::uint64_t portable = 0;
    for (const Kernels* kernels : all_kernels()) {
      Record record;
      test(*kernels, record);
      if (kernels == dragoman::available_kernels().front()) {
        portable = record.digest();
        std::printf("digest %s %016llx\n", title, static_cast<unsigned long long>(portable));
      }
      check(record.digest() == portable, std::string(kernels->name) + " " + title + ": other bits than portable");
    }
  }
  for (const Kernels* kernels : all_kernels()) std::printf("tested %s\n", kernels->name);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace testing

int main() { return testing::run(); }
