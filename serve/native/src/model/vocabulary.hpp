// The best tokens and the normalizer of rows of logits, in strips of the vocabulary.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "model/layers.hpp"

namespace dragoman {

// Memory for the best tokens of rows.
struct BestTokens {
  Index count;        // for each row
  float* log_sums;    // [rows]
  float* scores;      // [rows, count]
  std::int64_t* ids;  // [rows, count]
};

// Logits of some rows, which are wanted themselves.
struct ScoredRows {
  const std::int32_t* rows;  // [count]
  Index count;
  float* logits;  // [count, vocabulary]
};

inline constexpr Index kBlocksOfStrip = kStrip / kLanes;
inline constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

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

// Finishes one row from the states of all tasks.
inline void finish_row(Choice* choices, Index tasks, Index rows, Index row, Index vocabulary,
                       const Kernels& kernels, const BestTokens& out) {
  Choice& choice = choices[row];
  for (Index task = 1; task < tasks; ++task) {
    const Choice& other = choices[task * rows + row];
    kernels.choose_merge(choice, other.best, other.filled);
  }
  const Index at = row * out.count;
  out.log_sums[row] = kernels.choose_finish(choice, vocabulary, out.scores + at, out.ids + at);
}

inline void copy_strip(const float* strip_logits, Index strip, Index vocabulary, const ScoredRows& scored) {
  const Index first = strip * kStrip, count = std::min(kStrip, vocabulary - first);
  for (Index i = 0; i < scored.count; ++i) {
    const float* from = strip_logits + scored.rows[i] * kStrip;
    std::copy(from, from + count, scored.logits + i * vocabulary + first);
  }
}

// Computes the logits of all rows strip by strip, and chooses from each strip while it is in the cache.
inline void project_and_choose(const Linear& vocabulary, const Layers& layers, const Input& input, Index rows,
                               const Kernels& kernels, const Parallel& parallel, Workspace& workspace,
                               const ScoredRows& scored, const BestTokens& out) {
  const Index size = vocabulary.outputs, tasks = std::min(parallel.threads(), strip_count(size));
  Choice* choices = start_choices(tasks, rows, size, out.count, workspace);
  float* logits = workspace.strips.fit(tasks * rows * kStrip);
  parallel.split(strip_count(size), 1, [&](Index task, Index first, Index last) {
    float* strip_logits = logits + task * rows * kStrip;
    for (Index strip = first; strip < last; ++strip) {
      const BlockRange blocks{strip * kBlocksOfStrip, std::min((strip + 1) * kBlocksOfStrip, vocabulary.blocks())};
      layers.multiply(vocabulary, input, blocks, {}, {strip_logits, kStrip});
      for (Index row = 0, end = size - strip * kStrip; end < kStrip && row < rows; ++row)
        std::fill(strip_logits + row * kStrip + end, strip_logits + (row + 1) * kStrip, kNoLogit);
      kernels.choose_strip({strip_logits, kStrip}, rows, strip, choices + task * rows);
      copy_strip(strip_logits, strip, size, scored);
    }
  });
  parallel.split(rows, 1, [&](Index, Index first, Index last) {
    for (Index row = first; row < last; ++row) finish_row(choices, tasks, rows, row, size, kernels, out);
  });
}

// Chooses from logits [rows, vocabulary].
inline void choose(const float* logits, Index rows, Index vocabulary, const Kernels& kernels,
                   const Parallel& parallel, Workspace& workspace, const BestTokens& out) {
  Choice* choices = start_choices(1, rows, vocabulary, out.count, workspace);
  const Index whole = vocabulary / kStrip, rest = vocabulary % kStrip;
  parallel.split(rows, 1, [&](Index, Index first, Index last) {
    for (Index row = first; row < last; ++row) {
      const float* of_row = logits + row * vocabulary;
      for (Index strip = 0; strip < whole; ++strip)
        kernels.choose_strip({of_row + strip * kStrip, kStrip}, 1, strip, choices + row);
      if (rest > 0) {
        std::array<float, kStrip> padded;
        padded.fill(kNoLogit);
        std::copy(of_row + whole * kStrip, of_row + vocabulary, padded.begin());
        kernels.choose_strip({padded.data(), kStrip}, 1, whole, choices + row);
      }
      finish_row(choices, 1, rows, row, vocabulary, kernels, out);
    }
  });
}

}  // namespace dragoman
