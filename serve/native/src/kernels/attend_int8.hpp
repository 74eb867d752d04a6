// Attention in 8 bits: queries, keys, weights of softmax and values are integers, all products exact.
#pragma once

#include "kernels/attend.hpp"
#include "kernels/cache.hpp"

namespace dragoman {
namespace {

// Products of a head's query with the keys of 16 positions.
INLINE I32 int8_scores(const std::int8_t* query, std::int32_t query_sum, const std::int8_t* keys, Index size) {
  I32 even = first_score(query_sum), odd = broadcast(std::int32_t{0});
  Index i = 0;
  for (; i + 8 <= size; i += 8) {
    even = dot_keys(even, load_quad(query + i), load_bytes(keys + 16 * i));
    odd = dot_keys(odd, load_quad(query + i + 4), load_bytes(keys + 16 * i + 64));
  }
  if (i < size) even = dot_keys(even, load_quad(query + i), load_bytes(keys + 16 * i));
  if (i + 4 < size) odd = dot_keys(odd, load_quad(query + i + 4), load_bytes(keys + 16 * i + 64));
  return even + odd;
}

// Sums V vectors of a head's values; the last one has `last` lanes.
template <int V>
INLINE void int8_values(const std::uint8_t* weights, const std::int8_t* values, Index stride, Index group_bytes,
                        Index length, Index last, F32 factor, float* out) {
  I32 sum[V];
  each<V>([&](auto v) INLINE_LAMBDA { sum[v] = broadcast(std::int32_t{0}); });
  for (Index block = 0; block < length; block += kLanes, values += stride) {
    const std::int8_t* group = values;
    const Index end = smaller(length, block + kLanes);
    for (Index t = block; t < end; t += 4, group += group_bytes) {
      const Quad four = load_quad(weights + t);
      each<V>([&](auto v) INLINE_LAMBDA {
        const bool whole = v + 1 < V || last == kLanes;
        sum[v] = dot_values(sum[v], four, whole ? load_bytes(group + 64 * v) : load_bytes(group + 64 * v, last));
      });
    }
  }
  each<V>([&](auto v) INLINE_LAMBDA {
    store_some(out + 16 * v, to_float(sum[v]) * factor, v + 1 < V ? kLanes : last);
  });
}

// G heads of an attention, which take each step together.
template <int G>
struct Int8Group {
  Index size;
  Index length;
  Index positions;        // Tp
  Index width;            // size rounded up to 16
  float* scores;          // [G, Tp], then weights in float
  std::int8_t* query;     // [G, width]
  std::uint8_t* weights;  // [G, Tp]
  float factor[G];        // of the scores, then of the outputs
  std::int32_t query_sum[G];
  F32 largest[G];  // scores in each lane
};

template <int G>
INLINE void quantize_queries(Int8Group<G>& g, const float* queries) {
  const float root = 1.0f / __builtin_sqrtf(static_cast<float>(g.size));
  Scaling s[G];
  each<G>([&](auto h) INLINE_LAMBDA { s[h] = scaling(max_bits(queries + h * g.size, g.size), 127.0f); });
  each<G>([&](auto h) INLINE_LAMBDA {
    const float* query = queries + h * g.size;
    I32 sum = broadcast(std::int32_t{0});
    for_lanes(g.size, [&](Index i, Index n) INLINE_LAMBDA {
      const F32 x = load_some(query + i, n) * broadcast(s[h].factor);
      const I32 q = round_to_byte(max(x, broadcast(-127.0f)));  // NaN becomes a number
      sum = sum + (q - broadcast(kRounderBits));
      store_bytes(g.query + h * g.width + i, q);
    });
    g.query_sum[h] = reduce_add(sum);
    g.factor[h] = s[h].scale * root;
  });
}

template <int G>
INLINE void int8_scores_of(Int8Group<G>& g, const Int8Cache& cache, Index bytes) {
  each<G>([&](auto h) INLINE_LAMBDA { g.largest[h] = broadcast(-kInfinity); });
  const std::int8_t* keys = cache.values;
  const float* scales = cache.scales;
  for (Index t = 0; t < g.length; t += kLanes, keys += cache.value_stride, scales += cache.scale_stride)
    each<G>([&](auto h) INLINE_LAMBDA {
      const I32 products = int8_scores(g.query + h * g.width, g.query_sum[h], keys + h * bytes, g.size);
      const F32 factor = broadcast(g.factor[h]) * load(scales + h * kLanes);
      const F32 scores = valid_scores(to_float(products) * factor, t, g.length);
      g.largest[h] = max(g.largest[h], scores);
      store(g.scores + h * g.positions + t, scores);
    });
}

// Turns scores into weights for values with these scales. Softmax weights are written if they are wanted.
template <int G>
INLINE void int8_weights_of(Int8Group<G>& g, const float* scales, Index scale_stride, float* softmax, Index stride) {
  F32 sum[G];
  I32 largest[G];
  each<G>([&](auto h) INLINE_LAMBDA {
    g.largest[h] = broadcast(reduce_max(g.largest[h]));
    sum[h] = broadcast(0.0f);
    largest[h] = broadcast(std::int32_t{0});
  });
  for_lanes(g.length, [&](Index t, Index n) INLINE_LAMBDA {
    each<G>([&](auto h) INLINE_LAMBDA {
      float* scores = g.scores + h * g.positions + t;
      const F32 e = softmax_exp(load(scores) - g.largest[h]);
      sum[h] = sum[h] + e;
      if (softmax != nullptr) store_some(softmax + h * stride + t, e, n);
      F32 scale = load(scales + h * kLanes);
      if (n < kLanes) scale = select(first_lanes(n), scale, broadcast(0.0f));
      const F32 weight = e * scale;
      largest[h] = max_bits(largest[h], weight);
      store(scores, weight);
    });
    scales += scale_stride;
  });
  each<G>([&](auto h) INLINE_LAMBDA {
    const Scaling s = scaling(largest[h], 255.0f);
    const float total = reduce_add(sum[h]);
    g.factor[h] = s.scale / total;
    if (softmax != nullptr) scale_weights(softmax + h * stride, g.length, 1.0f / total);
    for (Index i = h * g.positions; i < (h + 1) * g.positions; i += kLanes)
      store_bytes(g.weights + i, round_to_byte(load(g.scores + i) * broadcast(s.factor)));
  });
}

template <int G>
INLINE void attend_int8_heads(Heads heads, const Int8Cache& cache, const Attention& a, Index first) {
  const Index bytes = head_bytes(heads), size = heads.size;
  Int8Group<G> g{size, a.length, round_up(a.length, kLanes), round_up(size, kLanes), a.scratch, {}, {}, {}, {}, {}};
  g.query = reinterpret_cast<std::int8_t*>(g.scores + G * g.positions);
  g.weights = reinterpret_cast<std::uint8_t*>(g.query + G * g.width);
  Int8Cache part = cache;
  part.values += first * bytes;
  part.scales += first * kLanes;
  quantize_queries(g, a.query + first * size);
  int8_scores_of(g, part, bytes);
  float* softmax = a.weights == nullptr ? nullptr : a.weights + first * a.weight_stride;
  int8_weights_of(g, part.scales + heads.count * kLanes, cache.scale_stride, softmax, a.weight_stride);
  each<G>([&](auto h) INLINE_LAMBDA {
    const std::int8_t* values = part.values + (heads.count + h) * bytes;
    for_value_parts(size, [&](Index i, auto vectors, Index last) INLINE_LAMBDA {
      int8_values<vectors>(g.weights + h * g.positions, values + 4 * i, cache.value_stride, bytes / 4, a.length, last,
                           broadcast(g.factor[h]), a.output + (first + h) * size + i);
    });
  });
}

void attend_int8(Heads heads, const Int8Cache& cache, const Attention& a) {
  with_known_heads(heads, [&](Heads known, auto together, Index first) INLINE_LAMBDA {
    attend_int8_heads<together>(known, cache, a, first);
  });
}

}  // namespace
}  // namespace dragoman
