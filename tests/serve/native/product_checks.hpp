// Checks of products with their epilogues, against scalar code.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cases.hpp"

namespace testing {
namespace {

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

// Pairs of inputs whose products with the largest weights fit just into 16 bits, with an offset of the weights or without,
// and pairs whose products do not.
void test_pairs_at_the_limit(const Kernels& kernels, Record& record) {
  constexpr Index k = 200, rows = 6;
  Random random(9);
  Matrix w(random, 32, k);
  for (Index o = 0; o < 32; ++o) {
    const auto weight = static_cast<std::int8_t>(o % 2 == 0 ? 127 : -127);
    w.offset[at(o)] = -128 * weight * static_cast<std::int32_t>(k);
    for (Index i = 0; i < k; ++i)
      w.plain_bytes[at(o * k + i)] = w.bytes[at(((o / 16 * (k / 4) + i / 4) * 16 + o % 16) * 4 + i % 4)] = weight;
  }
  Floats x;
  for (Index i = 0; i < rows * k / 2; ++i) {
    const float first = static_cast<float>(i % 5 == 0 ? 127 : 64 + random.below(64)), sign = i % 3 == 0 ? -1.0f : 1.0f;
    x.push_back(sign * first), x.push_back(sign * (static_cast<float>(126 + random.below(5)) - first));
  }
  const Floats y = multiply_int8(kernels, w, x, rows);
  expect_same(y, products_int8(w, x, rows), name(kernels, "pairs at the limit", {rows}));
  record.add(y);
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
  std::vector<std::uint8_t> bytes(at(rows * kernels.int8_stride(inputs)));
  Floats scales(at(rows));
  const dragoman::Int8Rows q{bytes.data(), scales.data(), kernels.int8_stride(inputs)};
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

}  // namespace
}  // namespace testing
