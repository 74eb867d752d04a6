// Checks of what a row of activations goes through besides products and attention: norms, embeddings, recurrent units.
#pragma once

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <numeric>
#include <vector>

#include "cases.hpp"

namespace testing {
namespace {

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

}  // namespace
}  // namespace testing
