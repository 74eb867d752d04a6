// Constraints on the logits of a row before its token is chosen, as serve/search/constraints.py has them.
//
// A forbidden token gets the logit -inf. No rule forbids the last possible token: the end token stays. NaN stays NaN.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "loop/options.hpp"

namespace dragoman {

// What the constraints change in the logits of one row, known before its step.
struct Constraint {
  std::vector<int64_t> penalized_ids;  // without repetition
  std::vector<int64_t> forbidden_ids;
  bool begins_word = false;
  bool end_is_early = false;

  bool changes() const { return begins_word || end_is_early || !penalized_ids.empty() || !forbidden_ids.empty(); }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Tokens that would complete an n-gram which the row contains (Paulus et al. 2018, arXiv:1705.04304, section 2.5).
inline void forbid_repeated_ngrams(const std::vector<int64_t>& target_ids, size_t size, int64_t end_id,
                                   std::vector<int64_t>& forbidden_ids) {
  if (size == 0 || target_ids.size() < size) return;
  const auto last = target_ids.end() - static_cast<std::ptrdiff_t>(size - 1);
  for (auto first = target_ids.begin(); first + static_cast<std::ptrdiff_t>(size) <= target_ids.end(); ++first) {
    const int64_t completing = first[static_cast<std::ptrdiff_t>(size - 1)];
    if (completing != end_id && std::equal(last, target_ids.end(), first)) forbidden_ids.push_back(completing);
  }
}

inline void postpone_end(float* logits, int32_t vocabulary, int64_t end_id) {
  const float before = logits[end_id];
  logits[end_id] -= kInfinity;
  const bool alone = std::all_of(logits, logits + vocabulary, [](float logit) { return logit == -kInfinity; });
  if (alone) logits[end_id] = before;
}

// Returns the constraint of a row with these target tokens, whose next token is not forced.
inline Constraint constraint_of(const SearchOptions& options, const std::vector<int64_t>& target_ids, int64_t end_id) {
  Constraint constraint;
  if (options.repetition_penalty != 1) {
    constraint.penalized_ids = target_ids;
    std::sort(constraint.penalized_ids.begin(), constraint.penalized_ids.end());
    const auto end = std::unique(constraint.penalized_ids.begin(), constraint.penalized_ids.end());
    constraint.penalized_ids.erase(end, constraint.penalized_ids.end());
  }
  const auto size = static_cast<size_t>(options.no_repeat_ngram_tokens);
  forbid_repeated_ngrams(target_ids, size, end_id, constraint.forbidden_ids);
  constraint.forbidden_ids.insert(constraint.forbidden_ids.end(), options.suppressed_ids.begin(),
                                  options.suppressed_ids.end());
  constraint.begins_word = options.begins_word(target_ids.size());
  constraint.end_is_early = target_ids.size() < static_cast<size_t>(options.min_target_tokens);
  return constraint;
}

// Changes the logits, [vocabulary]; `continuing_ids` are the tokens that continue a word.
inline void apply(const Constraint& constraint, float repetition_penalty, const std::vector<int64_t>& continuing_ids,
                  int64_t end_id, float* logits, int32_t vocabulary) {
  for (const int64_t id : constraint.penalized_ids) {
    const float before = logits[id];
    logits[id] = before > 0 ? before / repetition_penalty : before * repetition_penalty;
  }
  // A subtraction, so that a broken logit of +inf becomes NaN and stays visible.
  for (const int64_t id : constraint.forbidden_ids) logits[id] -= kInfinity;
  if (constraint.begins_word) {
    for (const int64_t id : continuing_ids) logits[id] -= kInfinity;
  }
  if (constraint.end_is_early) postpone_end(logits, vocabulary, end_id);
}

}  // namespace dragoman
