// Attention in 8 bits: queries, keys, weights of softmax and values are integers, all products exact.
#pragma once

#include "kernels/attend.hpp"
#include "kernels/cache.hpp"

namespace dragoman {
namespace {

// Parts of the scratch memory. Hp is H, Tp is T, and Dp is D rounded up to 16.
struct Int8Scratch {
  Index positions;           // Tp
  Index width;               // Dp
  float* scores;             // [H, Tp]
  float* factors;            // [Hp]: of scores, then of outputs
  float* sums;               // [Hp]: of exponentials
  std::int32_t* largest;     // [Hp]: bits of the largest number of the query, then of the weights
  std::int32_t* query_sums;  // [Hp]
  std::int8_t* query;        // [H, Dp]
  std::uint8_t* weights;     // [H, Tp]
};

INLINE Int8Scratch divide_scratch(Heads heads, const Attention& a) {
  const Index padded = round_up(heads.count, kLanes);
  Int8Scratch s;
  s.positions = round_up(a.length, kLanes);
  s.width = round_up(heads.size, kLanes);
  s.scores = a.scratch;
  s.factors = s.scores + heads.count * s.positions;
  s.sums = s.factors + padded;
  s.largest = reinterpret_cast<std::int32_t*>(s.sums + padded);
  s.query_sums = s.largest + padded;
  s.query = reinterpret_cast<std::int8_t*>(s.query_sums + padded);
  s.weights = reinterpret_cast<std::uint8_t*>(s.query + heads.count * s.width);
  store(s.largest + padded - kLanes, broadcast(std::int32_t{0}));  // defined numbers beyond the last head
  store(s.sums + padded - kLanes, broadcast(0.0f));
  return s;
}

INLINE void quantize_query(Heads heads, const Attention& a, const Int8Scratch& s) {
  const F32 root = broadcast(1.0f / __builtin_sqrtf(static_cast<float>(heads.size)));
  for (Index h = 0; h < heads.count; ++h) s.largest[h] = reduce_max(max_bits(a.query + h * heads.size, heads.size));
  for (Index first = 0; first < heads.count; first += kLanes) {
    const Scaling scale = scaling(load(s.largest + first), 127.0f);
    float factors[16];
    store(factors, scale.factor);
    store(s.factors + first, scale.scale * root);
    for (Index h = first; h < smaller(heads.count, first + kLanes); ++h) {
      const F32 factor = broadcast(factors[h - first]);
      I32 sum = broadcast(std::int32_t{0});
      for_lanes(heads.size, [&](Index i, Index n) INLINE_LAMBDA {
        const F32 x = load_some(a.query + h * heads.size + i, n);
        const I32 q = round_between(x * factor, -127.0f, 127.0f);
        sum = sum + q;
        store_bytes(s.query + h * s.width + i, q);
      });
      s.query_sums[h] = reduce_add(sum);
    }
  }
}

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

INLINE void int8_all_scores(Heads heads, const Int8Cache& cache, const Attention& a, const Int8Scratch& s) {
  const Index bytes = head_bytes(heads);
  for (Index t = 0; t < a.length; t += kLanes) {
    const std::int8_t* keys = cache.values + t / kLanes * cache.value_stride;
    const float* scales = cache.scales + t / kLanes * cache.scale_stride;
    for (Index h = 0; h < heads.count; ++h) {
      const I32 products = int8_scores(s.query + h * s.width, s.query_sums[h], keys + h * bytes, heads.size);
      const F32 factor = broadcast(s.factors[h]) * load(scales + h * kLanes);
      store(s.scores + h * s.positions + t, valid_scores(to_float(products) * factor, t, a.length));
    }
  }
}

// Turns a head's scores into exponentials times the scales of the values.
INLINE void int8_weights(const Attention& a, const Int8Scratch& s, Index h, const float* scales, Index stride) {
  float* scores = s.scores + h * s.positions;
  const F32 top = largest_score(scores, a.length);
  F32 sum = broadcast(0.0f);
  I32 largest = broadcast(std::int32_t{0});
  for_lanes(a.length, [&](Index t, Index n) INLINE_LAMBDA {
    const F32 e = exp(load(scores + t) - top);
    sum = sum + e;
    if (a.weights != nullptr) store_some(a.weights + h * a.weight_stride + t, e, n);
    F32 weight = e * load(scales);
    if (n < kLanes) weight = select(first_lanes(n), weight, broadcast(0.0f));
    largest = max_bits(largest, weight);
    store(scores + t, weight);
    scales += stride;
  });
  s.sums[h] = reduce_add(sum);
  s.largest[h] = reduce_max(largest);
}

// Rounds the weights of all heads to 8 bits.
INLINE void quantize_weights(Heads heads, const Attention& a, const Int8Scratch& s) {
  for (Index first = 0; first < heads.count; first += kLanes) {
    const Scaling scale = scaling(load(s.largest + first), 255.0f);
    float factors[16];
    store(factors, scale.factor);
    store(s.factors + first, scale.scale / load(s.sums + first));
    for (Index h = first; h < smaller(heads.count, first + kLanes); ++h) {
      const F32 factor = broadcast(factors[h - first]);
      for (Index t = 0; t < a.length; t += kLanes)
        store_bytes(s.weights + h * s.positions + t,
                    round_between(load(s.scores + h * s.positions + t) * factor, 0.0f, 255.0f));
      if (a.weights != nullptr) scale_weights(a, h, 1.0f / s.sums[h]);
    }
  }
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

INLINE void attend_int8_sized(Heads heads, const Int8Cache& cache, const Attention& a) {
  const Int8Scratch s = divide_scratch(heads, a);
  const Index bytes = head_bytes(heads);
  quantize_query(heads, a, s);
  int8_all_scores(heads, cache, a, s);
  for (Index h = 0; h < heads.count; ++h)
    int8_weights(a, s, h, cache.scales + (heads.count + h) * kLanes, cache.scale_stride);
  quantize_weights(heads, a, s);
  for (Index h = 0; h < heads.count; ++h) {
    const std::int8_t* values = cache.values + (heads.count + h) * bytes;
    for_value_parts(heads.size, [&](Index i, auto vectors, Index last) INLINE_LAMBDA {
      int8_values<vectors>(s.weights + h * s.positions, values + 4 * i, cache.value_stride, bytes / 4, a.length, last,
                           broadcast(s.factors[h]), a.output + h * heads.size + i);
    });
  }
}

void attend_int8(Heads heads, const Int8Cache& cache, const Attention& a) {
  with_known_size(heads, [&](Heads h) INLINE_LAMBDA { attend_int8_sized(h, cache, a); });
}

}  // namespace
}  // namespace dragoman
