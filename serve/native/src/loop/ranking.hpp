// The score by which finished hypotheses are ranked: score / length^alpha + beta * coverage.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "loop/sequence.hpp"

namespace dragoman {

// Avoids log(0) for a source token without attention.
constexpr double kMinCoverage = 1e-6;

// Returns sum_i log(min(sum_j a_ij, 1)) of the attention that each source token got (Wu et al. 2016, equation 14).
inline double coverage(const std::vector<float>& attention_sums) {
  double sum = 0;
  for (const double attention : attention_sums) sum += std::log(std::clamp(attention, kMinCoverage, 1.0));
  return sum;
}

inline double normalized_score(double score, size_t length, double coverage, const SearchOptions& options) {
  return score / std::pow(static_cast<double>(length), options.length_penalty) + options.coverage_penalty * coverage;
}

// Keeps the requested number of hypotheses, best first; ties keep the order in which they finished.
inline void rank(Sequence& sequence) {
  auto& finished = sequence.finished;
  std::stable_sort(finished.begin(), finished.end(), [](const Hypothesis& left, const Hypothesis& right) {
    return left.normalized_score > right.normalized_score;
  });
  if (finished.size() > static_cast<size_t>(sequence.options.hypotheses)) {
    finished.resize(static_cast<size_t>(sequence.options.hypotheses));
  }
}

}  // namespace dragoman
