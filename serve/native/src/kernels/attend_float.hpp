// Attention in float.
#pragma once

#include "kernels/attend.hpp"

namespace dragoman {
namespace {

// Four sums, of the inputs i mod 4, of a head's query with the keys of 16 positions.
INLINE F32 float_scores(const float* query, const float* keys, Index size) {
  F32 sum[4];
  each<4>([&](auto j) INLINE_LAMBDA { sum[j] = broadcast(0.0f); });
  const auto add = [&](Index i, auto j) INLINE_LAMBDA {
    sum[j] = fma(broadcast(query[i + j]), load(keys + (i + j) * kLanes), sum[j]);
  };
  Index i = 0;
  for (; i + 4 <= size; i += 4) each<4>([&](auto j) INLINE_LAMBDA { add(i, j); });
  each<3>([&](auto j) INLINE_LAMBDA {
    if (i + j < size) add(i, j);
  });
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Turns a head's scores into exponentials and returns the inverse of their sum.
INLINE float float_weights(const Attention& a, Index h, float* scores) {
  const F32 top = largest_score(scores, a.length);
  F32 sum = broadcast(0.0f);
  for_lanes(a.length, [&](Index t, Index n) INLINE_LAMBDA {
    const F32 e = exp(load(scores + t) - top);
    sum = sum + e;
    if (a.weights != nullptr) store_some(a.weights + h * a.weight_stride + t, e, n);
    store(scores + t, e);
  });
  const float inverse = 1.0f / reduce_add(sum);
  if (a.weights != nullptr) scale_weights(a, h, inverse);
  return inverse;
}

template <int V>
INLINE void float_values(const float* weights, const float* values, Index stride, Index size, Index length,
                         Index last, F32 factor, float* out) {
  F32 sum[V];
  each<V>([&](auto v) INLINE_LAMBDA { sum[v] = broadcast(0.0f); });
  for (Index block = 0; block < length; block += kLanes, values += stride) {
    const float* value = values;
    const Index end = smaller(length, block + kLanes);
    for (Index t = block; t < end; ++t, value += size) {
      const F32 weight = broadcast(weights[t]);
      each<V>([&](auto v) INLINE_LAMBDA {
        sum[v] = fma(weight, load_some(value + 16 * v, v + 1 < V ? kLanes : last), sum[v]);
      });
    }
  }
  each<V>([&](auto v) INLINE_LAMBDA { store_some(out + 16 * v, sum[v] * factor, v + 1 < V ? kLanes : last); });
}

INLINE void attend_float_sized(Heads heads, const FloatCache& cache, const Attention& a) {
  const Index padded = round_up(a.length, kLanes), floats = heads.size * kLanes;
  const F32 root = broadcast(1.0f / __builtin_sqrtf(static_cast<float>(heads.size)));
  for (Index t = 0; t < a.length; t += kLanes)
    for (Index h = 0; h < heads.count; ++h) {
      const float* keys = cache.values + t / kLanes * cache.value_stride + h * floats;
      const F32 scores = float_scores(a.query + h * heads.size, keys, heads.size) * root;
      store(a.scratch + h * padded + t, valid_scores(scores, t, a.length));
    }
  for (Index h = 0; h < heads.count; ++h) {
    float* weights = a.scratch + h * padded;
    const float* values = cache.values + (heads.count + h) * floats;
    const F32 inverse = broadcast(float_weights(a, h, weights));
    for_value_parts(heads.size, [&](Index i, auto vectors, Index last) INLINE_LAMBDA {
      float_values<vectors>(weights, values + i, cache.value_stride, heads.size, a.length, last, inverse,
                            a.output + h * heads.size + i);
    });
  }
}

void attend_float(Heads heads, const FloatCache& cache, const Attention& a) {
  with_known_size(heads, [&](Heads h) INLINE_LAMBDA { attend_float_sized(h, cache, a); });
}

}  // namespace
}  // namespace dragoman
