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

// Attends with G heads, step by step with all of them.
template <int G>
INLINE void attend_float_heads(Heads heads, const FloatCache& cache, const Attention& a, Index first) {
  const Index size = heads.size, floats = size * kLanes, length = a.length, positions = round_up(length, kLanes);
  const F32 root = broadcast(1.0f / __builtin_sqrtf(static_cast<float>(size)));
  const float* query = a.query + first * size;
  float* weights = a.scratch;  // [G, Tp]
  F32 largest[G], sum[G];
  each<G>([&](auto h) INLINE_LAMBDA { largest[h] = broadcast(-kInfinity); });
  const float* keys = cache.values + first * floats;
  for (Index t = 0; t < length; t += kLanes, keys += cache.value_stride)
    each<G>([&](auto h) INLINE_LAMBDA {
      const F32 scores = float_scores(query + h * size, keys + h * floats, size) * root;
      store(weights + h * positions + t, valid_scores(scores, t, length));
      largest[h] = max(largest[h], load(weights + h * positions + t));
    });
  each<G>([&](auto h) INLINE_LAMBDA {
    largest[h] = broadcast(reduce_max(largest[h]));
    sum[h] = broadcast(0.0f);
  });
  for_lanes(length, [&](Index t, Index n) INLINE_LAMBDA {
    each<G>([&](auto h) INLINE_LAMBDA {
      float* at = weights + h * positions + t;
      const F32 e = softmax_exp(load(at) - largest[h]);
      sum[h] = sum[h] + e;
      if (a.weights != nullptr) store_some(a.weights + (first + h) * a.weight_stride + t, e, n);
      store(at, e);
    });
  });
  each<G>([&](auto h) INLINE_LAMBDA {
    const float inverse = 1.0f / reduce_add(sum[h]);
    if (a.weights != nullptr) scale_weights(a.weights + (first + h) * a.weight_stride, length, inverse);
    const float* values = cache.values + (heads.count + first + h) * floats;
    for_value_parts(size, [&](Index i, auto vectors, Index last) INLINE_LAMBDA {
      float_values<vectors>(weights + h * positions, values + i, cache.value_stride, size, length, last,
                            broadcast(inverse), a.output + (first + h) * size + i);
    });
  });
}

void attend_float(Heads heads, const FloatCache& cache, const Attention& a) {
  with_known_heads(heads, [&](Heads known, auto together, Index first) INLINE_LAMBDA {
    attend_float_heads<together>(known, cache, a, first);
  });
}

}  // namespace
}  // namespace dragoman
