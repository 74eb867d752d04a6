// Sampling: the random numbers of a sequence and the token that each of them selects, as serve/search/sampling.py.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "loop/options.hpp"

namespace dragoman {

// A block of random bits of Philox4x64-10 (Salmon et al. 2011) with seed and sample as its key.
inline std::array<uint64_t, 4> philox(uint64_t counter, uint64_t seed, uint64_t sample) {
  __extension__ typedef unsigned __int128 Product;
  std::array<uint64_t, 4> block{counter, 0, 0, 0};
  for (int round = 0; round < 10; ++round) {
    const Product first = Product{block[0]} * 0xD2E7470EE14C6C93u;
    const Product second = Product{block[2]} * 0xCA5A826395121157u;
    block = {static_cast<uint64_t>(second >> 64) ^ block[1] ^ seed, static_cast<uint64_t>(second),
             static_cast<uint64_t>(first >> 64) ^ block[3] ^ sample, static_cast<uint64_t>(first)};
    seed += 0x9E3779B97F4A7C15u;
    sample += 0xBB67AE8584CAA73Bu;
  }
  return block;
}

// Returns the number in [0, 1) that decides a target token.
inline double uniform(uint64_t seed, uint64_t sample, uint64_t position) {
  // The generator of NumPy counts before it computes, so its first block has the counter 1.
  const uint64_t raw = philox(position / 4 + 1, seed, sample)[position % 4];
  return static_cast<double>(raw >> 11) * 0x1p-53;
}

// Draws tokens by inverse transform sampling; holds the memory for one vocabulary.
class Sampler {
 public:
  // Returns the token that the number selects among the logits, [vocabulary]. They must not be those of a broken row.
  int64_t draw(const float* logits, int32_t vocabulary, const SearchOptions& options, double number) {
    const auto size = static_cast<size_t>(vocabulary);
    const float highest = *std::max_element(logits, logits + size);
    weights_.resize(size);
    for (size_t id = 0; id < size; ++id) weights_[id] = weight(logits[id], highest, options.temperature);
    if (options.top_k > 0 || options.top_p < 1) keep_best(logits, size, options);
    // number < 1, so the product is below the last end. A token of weight 0 has an empty interval.
    const double target = number * std::accumulate(weights_.begin(), weights_.end(), 0.0);
    double end = 0;
    for (size_t id = 0; id < size; ++id) {
      end += weights_[id];
      if (end > target) return static_cast<int64_t>(id);
    }
    return 0;
  }

 private:
  static double weight(float logit, float highest, double temperature) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(highest)) / temperature);
  }

  // Sets the weights to 0 of tokens that top-k and then top-p drop; ties keep the lower ids.
  void keep_best(const float* logits, size_t vocabulary, const SearchOptions& options) {
    best_.assign(logits, logits + vocabulary);
    const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    // All tokens below the floor together have less probability than top-p drops, so they need no sorting.
    const double floor = (1 - options.top_p) * total / static_cast<double>(vocabulary);
    const auto probable = std::count_if(weights_.begin(), weights_.end(), [&](double each) { return each >= floor; });
    const int64_t most = std::min<int64_t>(options.top_k > 0 ? options.top_k : probable, best_.size());
    std::partial_sort(best_.begin(), best_.begin() + most, best_.end(), std::greater<>());
    best_.resize(static_cast<size_t>(most));
    double left = total;
    if (options.top_k > 0) {
      left = 0;
      for (const float logit : best_) left += weight(logit, best_[0], options.temperature);
    }
    size_t count = 1;
    double sum = weight(best_[0], best_[0], options.temperature);
    for (; count < best_.size() && sum < options.top_p * left; ++count) {
      sum += weight(best_[count], best_[0], options.temperature);
    }
    const float lowest = best_[count - 1];
    const auto higher = std::count_if(logits, logits + vocabulary, [&](float each) { return each > lowest; });
    auto ties = static_cast<int64_t>(count) - higher;
    for (size_t id = 0; id < vocabulary; ++id) {
      const bool kept = logits[id] > lowest || (logits[id] == lowest && ties-- > 0);
      if (!kept) weights_[id] = 0;
    }
  }

  std::vector<double> weights_;
  std::vector<float> best_;
};

}  // namespace dragoman
