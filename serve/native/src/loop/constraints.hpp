// Constraints on the logits of a row before its token is chosen, as serve/search/constraints.py has them.
//
// A forbidden token gets the logit -inf. No rule forbids the last possible token: the end token stays. NaN stays NaN.
#pragma once

#include <cstdint>
#include <vector>

#include "loop/options.hpp"

namespace dragoman {

// What the constraints change in the logits of one row, known before its step.
struct Constraint {
  std::vector<int64_t> penalized_ids;  // without repetition
  std::vector<int64_t> forbidden_ids;
  bool end_is_early = false;

  bool changes() const { return end_is_early || !penalized_ids.empty() || !forbidden_ids.empty(); }
};

// Returns the constraint of a row with these target tokens, whose next token is not forced.
Constraint constraint_of(const SearchOptions& options, const std::vector<int64_t>& target_ids, int64_t end_id);

// Changes the logits, [vocabulary].
void apply(const Constraint& constraint, float repetition_penalty, int64_t end_id, float* logits, int32_t vocabulary);

}  // namespace dragoman
