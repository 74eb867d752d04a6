// What attention in 8 bits and in float share. One query attends to the positions of a cache: scores of all heads,
// block by block; softmax; sums of values, head by head.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

// Calls f with heads of a size that the compiler knows, for the usual sizes.
template <class F>
INLINE void with_known_size(Heads heads, F f) {
  if (heads.size == 32) return f(Heads{heads.count, 32});
  if (heads.size == 64) return f(Heads{heads.count, 64});
  f(heads);
}

// Calls f(i, vectors, last) for each part of a head's values that is summed at a time: at most 4 vectors from i on,
// the last one of `last` lanes.
template <class F>
INLINE void for_value_parts(Index size, F f) {
  for (Index i = 0; i < size; i += 4 * kLanes) {
    const Index some = smaller(4 * kLanes, size - i), last = (some - 1) % kLanes + 1;
    if (some > 3 * kLanes) f(i, Constant<4>{}, last);
    else if (some > 2 * kLanes) f(i, Constant<3>{}, last);
    else if (some > kLanes) f(i, Constant<2>{}, last);
    else f(i, Constant<1>{}, last);
  }
}

// Scores of a vector of positions; those beyond the length are -inf.
INLINE F32 valid_scores(F32 scores, Index from, Index length) {
  return length - from >= kLanes ? scores : select(first_lanes(length - from), scores, broadcast(-kInfinity));
}

INLINE F32 largest_score(const float* scores, Index length) {
  F32 largest = load(scores);
  for (Index t = kLanes; t < length; t += kLanes) largest = max(largest, load(scores + t));
  return broadcast(reduce_max(largest));
}

// Divides the exponentials that the caller wants as weights by the sum of head h.
INLINE void scale_weights(const Attention& a, Index h, float inverse) {
  float* weights = a.weights + h * a.weight_stride;
  for_lanes(a.length, [&](Index t, Index n) INLINE_LAMBDA {
    store_some(weights + t, load_some(weights + t, n) * broadcast(inverse), n);
  });
}

}  // namespace
}  // namespace dragoman
