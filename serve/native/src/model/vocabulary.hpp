// The best tokens and the normalizer of rows of logits, in strips of the vocabulary.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "model/layers.hpp"

namespace dragoman {

// Memory for the best tokens of rows.
struct BestTokens {
  Index count;        // for each row
  float* log_sums;    // [rows]
  float* scores;      // [rows, count]
  std::int64_t* ids;  // [rows, count]

  // The rows from one on.
  BestTokens from(Index row) const { return {count, log_sums + row, scores + row * count, ids + row * count}; }
};

// Logits of some rows, which are wanted themselves.
struct ScoredRows {
  const std::int32_t* rows;  // [count]
  Index count;
  float* logits;  // [count, vocabulary]
};

inline constexpr Index kBlocksOfStrip = kStrip / kLanes;
inline constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

// Rows of a step that are computed together.
struct RowRange {
  Index first;
  Index count;
  bool has(Index row) const { return row >= first && row < first + count; }
};

// Tokens whose logits become -inf.
struct ForbiddenTokens {
  const std::pair<std::int32_t, std::int32_t>* tokens;  // [count]: ids and their rows, ascending
  Index count;

  // Changes the logits of the ids first, ..., end - 1 in some rows; those of row r begin at logits + (r - rows.first) *
  // stride. A broken logit of +inf becomes NaN, which stays visible.
  void apply(Index first, Index end, RowRange rows, float* logits, Index stride) const {
    const std::pair<std::int32_t, std::int32_t> from{static_cast<std::int32_t>(first), 0};
    for (const auto* at = std::lower_bound(tokens, tokens + count, from); at < tokens + count && at->first < end; ++at)
      if (rows.has(at->second)) logits[(at->second - rows.first) * stride + at->first - first] += kNoLogit;
  }
};

// Returns the state of each row for each task, which all begin empty: [tasks, rows].
inline Choice* start_choices(Index tasks, Index rows, Index vocabulary, Index best_count, Workspace& workspace) {
  const Index strips = round_up(strip_count(vocabulary), kLanes);
  float* largest = workspace.largest.fit(rows * strips);
  float* sums = workspace.sums.fit(rows * strips);
  Candidate* best = workspace.best.fit(tasks * rows * best_count);
  workspace.choices.clear();
  for (Index i = 0; i < tasks * rows; ++i)
    workspace.choices.push_back(
        {largest + i % rows * strips, sums + i % rows * strips, best + i * best_count, best_count, 0});
  return workspace.choices.data();
}

// Chooses from the logits of all rows strip by strip, while a strip is in the cache.
//
// fill(strip, count, logits) writes the first `count` logits of a strip to rows of kStrip.
template <class F>
void choose_by_strips(Index rows, Index vocabulary, const Kernels& kernels, const Parallel& parallel,
                      Workspace& workspace, const BestTokens& out, F fill) {
  const Index strips = strip_count(vocabulary), tasks = std::min(parallel.threads(), strips);
  Choice* choices = start_choices(tasks, rows, vocabulary, out.count, workspace);
  float* logits = workspace.strips.fit(tasks * rows * kStrip);
  parallel.split(strips, 1, [&](Index task, Index first, Index last) {
    float* of_strip = logits + task * rows * kStrip;
    for (Index strip = first; strip < last; ++strip) {
      const Index count = std::min(kStrip, vocabulary - strip * kStrip);
      fill(strip, count, of_strip);
      for (Index row = 0; count < kStrip && row < rows; ++row)
        std::fill(of_strip + row * kStrip + count, of_strip + (row + 1) * kStrip, kNoLogit);
      kernels.choose_strip({of_strip, kStrip}, rows, strip, choices + task * rows);
    }
  });
  parallel.split(rows, 1, [&](Index, Index first, Index last) {
    for (Index row = first; row < last; ++row) {
      for (Index task = 1; task < tasks; ++task) {
        const Choice& other = choices[task * rows + row];
        kernels.choose_merge(choices[row], other.best, other.filled);
      }
      const Index at = row * out.count;
      out.log_sums[row] = kernels.choose_finish(choices[row], vocabulary, out.scores + at, out.ids + at);
    }
  });
}

// Chooses from the logits of the vocabulary for some rows, and copies those that are wanted themselves.
inline void project_and_choose(const Linear& vocabulary, const Layers& layers, const Input& input, RowRange rows,
                               const Kernels& kernels, const Parallel& parallel, Workspace& workspace,
                               const ScoredRows& scored, const ForbiddenTokens& forbidden, const BestTokens& out) {
  const auto fill = [&](Index strip, Index count, float* logits) {
    const BlockRange blocks{strip * kBlocksOfStrip, std::min((strip + 1) * kBlocksOfStrip, vocabulary.blocks())};
    layers.multiply(vocabulary, input.from(rows.first), rows.count, blocks, {}, {logits, kStrip});
    forbidden.apply(strip * kStrip, strip * kStrip + count, rows, logits, kStrip);
    for (Index i = 0; i < scored.count; ++i) {
      if (!rows.has(scored.rows[i])) continue;
      const float* from = logits + (scored.rows[i] - rows.first) * kStrip;
      std::copy_n(from, count, scored.logits + i * vocabulary.outputs + strip * kStrip);
    }
  };
  choose_by_strips(rows.count, vocabulary.outputs, kernels, parallel, workspace, out.from(rows.first), fill);
}

// Chooses from logits [rows, vocabulary].
inline void choose(const float* logits, Index rows, Index vocabulary, const Kernels& kernels,
                   const Parallel& parallel, Workspace& workspace, const BestTokens& out) {
  const auto fill = [&](Index strip, Index count, float* of_strip) {
    for (Index row = 0; row < rows; ++row)
      std::copy_n(logits + row * vocabulary + strip * kStrip, count, of_strip + row * kStrip);
  };
  choose_by_strips(rows, vocabulary, kernels, parallel, workspace, out, fill);
}

}  // namespace dragoman
