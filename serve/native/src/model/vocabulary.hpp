// The best tokens and the normalizer of rows of logits, in strips of the vocabulary.
#pragma once

#include "model/layers.hpp"

namespace dragoman {

struct Choices {
  Index best_count;
  float* log_sums;          // [rows]
  float* best_scores;       // [rows, best_count]
  std::int64_t* best_ids;   // [rows, best_count]
};

// Logits of some rows, which are wanted themselves.
struct ScoredRows {
  const std::int32_t* rows;  // [count]
  Index count;
  float* logits;  // [count, vocabulary]
};

// Computes the logits of all rows strip by strip, and chooses from each strip while it is in the cache.
void project_and_choose(const Linear& vocabulary, const Layers& layers, const Input& input, Index rows,
                        const Kernels& kernels, const Parallel& parallel, Workspace& workspace,
                        const ScoredRows& scored, const Choices& out);

// Chooses from logits [rows, vocabulary].
void choose(const float* logits, Index rows, Index vocabulary, const Kernels& kernels, const Parallel& parallel,
            Workspace& workspace, const Choices& out);

}  // namespace dragoman
