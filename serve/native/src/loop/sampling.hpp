// Sampling: the random numbers of a sequence and the token that each of them selects, as serve/search/sampling.py.
#pragma once

#include <cstdint>
#include <vector>

#include "loop/options.hpp"

namespace dragoman {

// Returns the number in [0, 1) that decides a target token: Philox4x64-10 (Salmon et al. 2011) with seed and sample
// as its key.
double uniform(uint64_t seed, uint64_t sample, uint64_t position);

// Draws tokens by inverse transform sampling; holds the memory for one vocabulary.
class Sampler {
 public:
  // Returns the token that the number selects among the logits, [vocabulary]. They must not be those of a broken row.
  int64_t draw(const float* logits, int32_t vocabulary, const SearchOptions& options, double number);

 private:
  void keep_best(const float* logits, size_t vocabulary, const SearchOptions& options);

  std::vector<double> weights_;
  std::vector<float> best_;
};

}  // namespace dragoman
