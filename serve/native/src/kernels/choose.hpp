// The best tokens and the log-sum-exp of a row of logits, strip by strip.
//
// The sum of a strip does not depend on other strips, and the order of candidates is total. So neither the order of
// strips nor their threads change a bit.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

INLINE bool better(Candidate a, Candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// The candidates are a heap: the worst is the first. Puts x in place of the element at `i` and moves it down.
INLINE void sift_down(Candidate* heap, Index count, Index i, Candidate x) {
  for (;;) {
    Index child = 2 * i + 1;
    if (child >= count) break;
    if (child + 1 < count && better(heap[child], heap[child + 1])) ++child;
    if (!better(x, heap[child])) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = x;
}

INLINE void add_candidate(Choice& c, Candidate x) {
  if (c.filled == c.best_count) {
    if (c.best_count > 0 && better(x, c.best[0])) sift_down(c.best, c.filled, 0, x);
    return;
  }
  Index i = c.filled++;
  for (; i > 0 && better(c.best[(i - 1) / 2], x); i = (i - 1) / 2) c.best[i] = c.best[(i - 1) / 2];
  c.best[i] = x;
}

// Adds those of kStrip logits that may be among the best; none of them is less than `bound`.
INLINE void add_candidates(Choice& c, const float* logits, Index first, float bound) {
  for (Index i = 0; i < kStrip; i += 4 * kLanes) {
    // Ids ascend within a thread, but strips may not: a tie with the worst candidate is looked at.
    const F32 worst = broadcast(c.filled == c.best_count ? c.best[0].logit : bound);
    std::uint64_t less = 0;
    each<4>([&](auto j) INLINE_LAMBDA {
      less |= std::uint64_t{lane_bits(load(logits + i + j * kLanes) < worst)} << (16 * j);
    });
    for (std::uint64_t open = ~less; open != 0; open &= open - 1) {
      const Index at = i + __builtin_ctzll(open);
      add_candidate(c, {logits[at], static_cast<std::int32_t>(first + at)});
    }
  }
}

// 16 logits, and -inf beyond the last.
INLINE F32 load_logits(const float* p, Index n) {
  return n == kLanes ? load(p) : select(first_lanes(n), load(p, n), broadcast(-kInfinity));
}

// max, but 0 if all are -inf, so that exp(x - max) is defined.
INLINE F32 shift_of(float largest) { return broadcast(largest == -kInfinity ? 0.0f : largest); }

// The largest of kStrip logits in each lane, by four chains.
INLINE F32 strip_max(const float* logits) {
  F32 largest[4];
  each<4>([&](auto j) INLINE_LAMBDA { largest[j] = load(logits + j * kLanes); });
  for (Index i = 4 * kLanes; i < kStrip; i += 4 * kLanes)
    each<4>([&](auto j) INLINE_LAMBDA { largest[j] = max(largest[j], load(logits + i + j * kLanes)); });
  return max(max(largest[0], largest[1]), max(largest[2], largest[3]));
}

// A bound that `count` logits of a strip reach: the largest of as many lanes do.
INLINE float bound_of(F32 largest, Index count) {
  float bound = kInfinity, lanes[16];
  store(lanes, largest);
  for (const float x : lanes)
    if (x < bound && __builtin_popcount(lane_bits(broadcast(x) < largest)) < count) bound = x;
  return count > kLanes ? -kInfinity : bound;
}

// The sum of exp(logit - shift) of kStrip logits, by four chains.
INLINE float strip_sum(const float* logits, F32 shift) {
  F32 sum[4];
  each<4>([&](auto j) INLINE_LAMBDA { sum[j] = broadcast(0.0f); });
  for (Index i = 0; i < kStrip; i += 4 * kLanes)
    each<4>([&](auto j) INLINE_LAMBDA { sum[j] = sum[j] + softmax_exp(load(logits + i + j * kLanes) - shift); });
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void choose_strip(FloatRows logits, Index rows, Index strip, Choice* choices) {
  F32 next = strip_max(logits.data);
  for (Index r = 0; r < rows; ++r, logits.data += logits.stride) {
    Choice& c = choices[r];
    const F32 lanes = next;
    if (r + 1 < rows) next = strip_max(logits.data + logits.stride);  // meanwhile: the sum waits for its maximum
    const float largest = reduce_max(lanes);
    c.largest[strip] = largest;
    c.sums[strip] = strip_sum(logits.data, shift_of(largest));
    if (c.best_count == 0 || (c.filled == c.best_count && largest < c.best[0].logit)) continue;
    add_candidates(c, logits.data, strip * kStrip, c.filled == 0 ? bound_of(lanes, c.best_count) : -kInfinity);
  }
}

void choose_merge(Choice& c, const Candidate* others, Index count) {
  for (Index i = 0; i < count; ++i) add_candidate(c, others[i]);
}

INLINE float log_sum(const Choice& c, Index strips) {
  F32 largest = broadcast(-kInfinity), sum = broadcast(0.0f);
  for_lanes(strips, [&](Index i, Index n) INLINE_LAMBDA { largest = max(largest, load_logits(c.largest + i, n)); });
  const float top = reduce_max(largest);
  const F32 shift = shift_of(top);
  for_lanes(strips, [&](Index i, Index n) INLINE_LAMBDA {
    sum = fma(load_some(c.sums + i, n), exp(load_logits(c.largest + i, n) - shift), sum);
  });
  const float total = reduce_add(sum);
  return total > 0.0f ? top + log(total) : kNan;
}

float choose_finish(Choice& c, Index vocabulary, float* scores, std::int64_t* ids) {
  const float total = log_sum(c, strip_count(vocabulary));
  if (!(total < kInfinity && total > -kInfinity)) {
    for (Index i = 0; i < c.best_count; ++i) scores[i] = kNan, ids[i] = i;
    return kNan;
  }
  while (c.filled > 0) {
    const Candidate worst = c.best[0];
    scores[--c.filled] = worst.logit - total;
    ids[c.filled] = worst.id;
    sift_down(c.best, c.filled, 0, c.best[c.filled]);
  }
  return total;
}

}  // namespace
}  // namespace dragoman
