// What attention in 8 bits and in float share. One query attends to the positions of a cache: scores, block by block;
// softmax; sums of values. T is the length, Tp is T rounded up to 16.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

// Calls f(heads, together, first) for all heads, `together` from `first` on: one head alone would wait for each of its
// results. The compiler knows the usual head sizes.
template <class F>
INLINE void with_known_heads(Heads heads, F f) {
  const auto all = [&](Heads known, auto together) INLINE_LAMBDA {
    for (Index h = 0; h < heads.count; h += together) f(known, together, h);
  };
  const Constant<kHeadsTogether> some;
  if (heads.count % kHeadsTogether != 0) return all(heads, Constant<1>{});
  if (heads.size == 32) return all(Heads{heads.count, 32}, some);
  if (heads.size == 64) return all(Heads{heads.count, 64}, some);
  all(heads, some);
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

// Divides the exponentials that the caller wants as weights by their sum.
INLINE void scale_weights(float* weights, Index length, float inverse) {
  for_lanes(length, [&](Index t, Index n) INLINE_LAMBDA {
    store_some(weights + t, load_some(weights + t, n) * broadcast(inverse), n);
  });
}

}  // namespace
}  // namespace dragoman
