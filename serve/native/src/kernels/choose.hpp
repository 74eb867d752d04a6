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

// Adds those of n logits that may be among the best.
INLINE void add_candidates(Choice& c, const float* logits, Index first, Index count) {
  for_lanes(count, [&](Index i, Index n) INLINE_LAMBDA {
    unsigned open = (1u << n) - 1;
    // Ids ascend within a thread, but strips may not: a tie with the worst candidate is looked at.
    if (c.filled == c.best_count) {
      const F32 worst = broadcast(c.best[0].logit);
      open &= ~lane_bits(load_some(logits + i, n) < worst);
    }
    for (; open != 0; open &= open - 1) {
      const int lane = __builtin_ctz(open);
      add_candidate(c, {logits[i + lane], static_cast<std::int32_t>(first + i + lane)});
    }
  });
}

// 16 logits, and -inf beyond the last.
INLINE F32 load_logits(const float* p, Index n) {
  return n == kLanes ? load(p) : select(first_lanes(n), load(p, n), broadcast(-kInfinity));
}

// max, but 0 if all are -inf, so that exp(x - max) is defined.
INLINE F32 shift_of(float largest) { return broadcast(largest == -kInfinity ? 0.0f : largest); }

// The largest of kStrip logits, by four chains.
INLINE float strip_max(const float* logits) {
  F32 largest[4];
  each<4>([&](auto j) INLINE_LAMBDA { largest[j] = load(logits + j * kLanes); });
  for (Index i = 4 * kLanes; i < kStrip; i += 4 * kLanes)
    each<4>([&](auto j) INLINE_LAMBDA { largest[j] = max(largest[j], load(logits + i + j * kLanes)); });
  return reduce_max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
}

// The sum of exp(logit - shift) of kStrip logits, by four chains.
INLINE float strip_sum(const float* logits, F32 shift) {
  F32 sum[4];
  each<4>([&](auto j) INLINE_LAMBDA { sum[j] = broadcast(0.0f); });
  for (Index i = 0; i < kStrip; i += 4 * kLanes)
    each<4>([&](auto j) INLINE_LAMBDA { sum[j] = sum[j] + exp(load(logits + i + j * kLanes) - shift); });
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void choose_strip(const float* logits, Index strip, Index vocabulary, Choice& c) {
  const Index first = strip * kStrip, count = smaller(kStrip, vocabulary - first);
  float padded[kStrip];
  const float* whole = logits;
  if (count < kStrip) {
    for (Index i = 0; i < kStrip; ++i) padded[i] = i < count ? logits[i] : -kInfinity;
    whole = padded;
  }
  const float largest = strip_max(whole);
  c.largest[strip] = largest;
  c.sums[strip] = strip_sum(whole, shift_of(largest));
  if (c.best_count == 0 || (c.filled == c.best_count && largest < c.best[0].logit)) return;
  add_candidates(c, logits, first, count);
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
