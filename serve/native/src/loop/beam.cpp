#include "loop/beam.hpp"

#include <algorithm>
#include <utility>

namespace dragoman {

void keep_best(std::vector<Candidate>& candidates, size_t beam_size) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& left, const Candidate& right) { return left.score > right.score; });
  if (candidates.size() > 2 * beam_size) candidates.resize(2 * beam_size);
}

std::vector<Candidate> survivors(const std::vector<Candidate>& candidates, size_t beam_size, int64_t end_id) {
  std::vector<Candidate> following;
  for (const Candidate& candidate : candidates) {
    if (following.size() == beam_size) break;
    if (candidate.token_id != end_id) following.push_back(candidate);
  }
  return following;
}

void place(Sequence& sequence, const std::vector<Candidate>& survivors, std::vector<Branch>& branches) {
  std::vector<Row>& origins = sequence.rows;
  std::vector<size_t> successors(origins.size(), 0);
  for (const Candidate& survivor : survivors) ++successors[survivor.origin];
  std::vector<bool> continued(origins.size(), false);
  for (size_t rank = 0; rank < origins.size(); ++rank) {
    if (successors[rank] == 0) sequence.spare_slots.push_back(origins[rank].slot);
  }
  std::vector<Row> rows;
  for (const Candidate& survivor : survivors) {
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
