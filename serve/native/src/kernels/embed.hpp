// A row of an embedding table that is stored as the weights of a product, times a scale, plus a position.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

void embed_int8(const Int8Matrix& table, Index id, float scale, const float* position, float* out) {
  const Index groups = (table.inputs + 3) / 4;
  const std::int8_t* row = table.weight + id / kLanes * groups * 64 + id % kLanes * 4;
  const F32 unit = broadcast(table.scale[id]), factor = broadcast(scale);
  for_lanes(table.inputs, [&](Index i, Index n) INLINE_LAMBDA {
    std::int8_t bytes[16] = {};
    for (Index g = 0; 4 * g < n; ++g) std::memcpy(bytes + 4 * g, row + (i / 4 + g) * 64, 4);
    store_some(out + i, fma(to_float(widen(bytes)) * unit, factor, load_some(position + i, n)), n);
  });
}

void embed_float(const FloatMatrix& table, Index id, float scale, const float* position, float* out) {
  const float* row = table.weight + id / kLanes * table.inputs * kLanes + id % kLanes;
  const F32 factor = broadcast(scale);
  for_lanes(table.inputs, [&](Index i, Index n) INLINE_LAMBDA {
    float values[16] = {};
    for (Index j = 0; j < n; ++j) values[j] = row[(i + j) * kLanes];
    store_some(out + i, fma(load(values), factor, load_some(position + i, n)), n);
  });
}

}  // namespace
}  // namespace dragoman
