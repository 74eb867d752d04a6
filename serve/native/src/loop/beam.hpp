// One step of the beam of one sequence; the semantics are those of serve/search/beam.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "loop/sequence.hpp"

namespace dragoman {

// A one-token expansion of a hypothesis.
struct Expansion {
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

// Adds a candidate to the best 2K, best first; returns false if it is none of them. Ties keep their order: the better
// hypothesis, then its earlier token. At most K of the 2K end, one per hypothesis, so enough remain to fill the beam.
inline bool keep(std::vector<Expansion>& best, const Expansion& candidate, size_t beam_size) {
  const auto better = [](const Expansion& left, const Expansion& right) { return left.score > right.score; };
  const auto index = std::upper_bound(best.begin(), best.end(), candidate, better) - best.begin();
  if (static_cast<size_t>(index) == 2 * beam_size) return false;
  if (best.size() == 2 * beam_size) best.pop_back();
  best.insert(best.begin() + index, candidate);
  return true;
}

// Returns the first K candidates that do not end: the next beam.
inline std::vector<Expansion> survivors(const std::vector<Expansion>& candidates, size_t beam_size, int64_t end_id) {
  std::vector<Expansion> following;
  for (const Expansion& candidate : candidates) {
    if (following.size() < beam_size && candidate.token_id != end_id) following.push_back(candidate);
  }
  return following;
}

// Replaces the rows of a sequence by those of the survivors, without the tokens that these add.
//
// The first hypothesis of an origin keeps its slot. Each further one takes a slot without a hypothesis, so no slot is
// both source and target of a branch, and the branches may happen in any order.
inline void place(Sequence& sequence, const std::vector<Expansion>& survivors, std::vector<Branch>& branches) {
  std::vector<Row>& origins = sequence.rows;
  std::vector<size_t> successors(origins.size(), 0);
  for (const Expansion& survivor : survivors) ++successors[survivor.origin];
  std::vector<bool> continued(origins.size(), false);
  for (size_t rank = 0; rank < origins.size(); ++rank) {
    if (successors[rank] == 0) sequence.spare_slots.push_back(origins[rank].slot);
  }
  std::vector<Row> rows;
  for (const Expansion& survivor : survivors) {
    Row& origin = origins[survivor.origin];
    const Branch branch{origin.slot, origin.slot, origin.position() + 1};
    const bool last = --successors[survivor.origin] == 0;
    rows.push_back(last ? std::move(origin) : origin);
    if (continued[survivor.origin]) {
      rows.back().slot = sequence.spare_slots.back();
      sequence.spare_slots.pop_back();
      branches.push_back({branch.from_slot, rows.back().slot, branch.positions});
    }
    continued[survivor.origin] = true;
  }
  origins = std::move(rows);
}

}  // namespace dragoman
