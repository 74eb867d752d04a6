// One step of the beam of one sequence; the semantics are those of serve/search/beam.py.
#pragma once

#include <cstdint>
#include <vector>

#include "loop/sequence.hpp"

namespace dragoman {

// A one-token expansion of a hypothesis.
struct Candidate {
  double score = 0;  // of the longer hypothesis
  size_t origin = 0;  // rank of the expanded hypothesis
  int64_t token_id = 0;
  float token_score = 0;
};

// A copy of the state of a row that continues in several hypotheses.
struct Branch {
  int32_t from_slot = 0;
  int32_t to_slot = 0;
  int32_t positions = 0;
};

// Keeps the best 2K candidates, best first. Ties keep their order: the better hypothesis, then its earlier token.
// At most K of the 2K end, one per hypothesis, so enough remain to fill the beam.
void keep_best(std::vector<Candidate>& candidates, size_t beam_size);

// Returns the first K candidates that do not end: the next beam.
std::vector<Candidate> survivors(const std::vector<Candidate>& candidates, size_t beam_size, int64_t end_id);

// Replaces the rows of a sequence by those of the survivors, without the tokens that these add.
//
// The first hypothesis of an origin keeps its slot. Each further one takes a slot without a hypothesis, so no slot is
// both source and target of a branch, and the branches may happen in any order.
void place(Sequence& sequence, const std::vector<Candidate>& survivors, std::vector<Branch>& branches);

}  // namespace dragoman
