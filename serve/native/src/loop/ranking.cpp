#include "loop/ranking.hpp"

#include <algorithm>
#include <cmath>

namespace dragoman {
namespace {

// Avoids log(0) for a source token without attention.
constexpr double kLeastCoverage = 1e-6;

}  // namespace

double coverage(const std::vector<float>& attention_sums) {
  double sum = 0;
  for (const float attention : attention_sums) {
    sum += std::log(std::clamp(static_cast<double>(attention), kLeastCoverage, 1.0));
  }
  return sum;
}

double normalized_score(double score, size_t length, double coverage, const SearchOptions& options) {
  return score / std::pow(static_cast<double>(length), options.length_penalty) + options.coverage_penalty * coverage;
}

void rank(Sequence& sequence) {
  auto& finished = sequence.finished;
  std::stable_sort(finished.begin(), finished.end(), [](const Hypothesis& left, const Hypothesis& right) {
    return left.normalized_score > right.normalized_score;
  });
  if (finished.size() > static_cast<size_t>(sequence.options.hypotheses)) {
    finished.resize(static_cast<size_t>(sequence.options.hypotheses));
  }
}

}  // namespace dragoman
