// The score by which finished hypotheses are ranked: score / length^alpha + beta * coverage.
#pragma once

#include <vector>

#include "loop/sequence.hpp"

namespace dragoman {

// Returns sum_i log(min(sum_j a_ij, 1)) of the attention that each source token got (Wu et al. 2016, equation 14).
double coverage(const std::vector<float>& attention_sums);

double normalized_score(double score, size_t length, double coverage, const SearchOptions& options);

// Keeps the requested number of hypotheses, best first; ties keep the order in which they finished.
void rank(Sequence& sequence);

}  // namespace dragoman
