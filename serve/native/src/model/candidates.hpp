// The choice of rows that have a shortlist: only the logits of their candidates are computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/vocabulary.hpp"

namespace dragoman {

// The shortlists of the rows of a step. Rows of one source slot have the same one.
struct Candidates {
  const TokenList* lists;            // null, or [rows]
  const std::int32_t* source_slots;  // [rows]

  // 0: the row chooses from the whole vocabulary.
  Index count(Index row) const { return lists == nullptr ? 0 : lists[row].count; }
  const std::int32_t* list(Index row) const { return lists[row].ids; }
  bool together(Index row, Index other) const {
    if (count(row) == 0 || count(other) == 0) return count(row) == count(other);
    return source_slots[row] == source_slots[other];
  }

  // Returns the fewest ranges of rows that have one list, or none.
  std::vector<RowRange> parts(Index rows) const {
    std::vector<RowRange> parts;
    for (Index row = 0; row < rows; ++row) {
      if (row > 0 && together(row, row - 1)) ++parts.back().count;
      else parts.push_back({row, 1});
    }
    return parts;
  }
};

// Computes rows with shortlists. The outputs of a list are packed once for all steps of its source: they are few, and
// lie apart in the matrix. So each row reads little, and its bits depend on no other row's list.
class CandidateChoice {
 public:
  // `number`: of the matrix, which no other one has ever had.
  CandidateChoice(const Linear& vocabulary, std::uint64_t number, const Candidates& candidates, const Layers& layers,
                  const Kernels& kernels, const ScoredRows& scored, const BestTokens& out)
      : vocabulary_(vocabulary),
        number_(number),
        candidates_(candidates),
        layers_(layers),
        kernels_(kernels),
        scored_(scored),
        out_(out) {}

  // Chooses for the rows of `parts`, each of which has a list.
  void choose(const std::vector<RowRange>& parts, Index rows, const Input& input, const Parallel& parallel,
              Workspace& workspace) const {
    Index longest = 0, most = 0;
    std::vector<const Linear*> packed;
    for (const RowRange& part : parts) {
      const Index count = candidates_.count(part.first);
      longest = std::max(longest, count);
      most = std::max(most, part.count * round_up(count, kStrip));
      const auto slot = static_cast<std::size_t>(candidates_.source_slots[part.first]);
      if (slot >= workspace.candidates.size()) workspace.candidates.resize(slot + 1);
    }
    for (const RowRange& part : parts) {
      PackedColumns& columns = workspace.candidates[static_cast<std::size_t>(candidates_.source_slots[part.first])];
      packed.push_back(&columns.pack(number_, vocabulary_, candidates_.lists[part.first]));
    }
    Choice* choices = start_choices(1, rows, longest, out_.count, workspace);
    float* logits = workspace.strips.fit(parallel.threads() * most);
    parallel.split(static_cast<Index>(parts.size()), 1, [&](Index task, Index first, Index last) {
      for (Index i = first; i < last; ++i) {
        const auto at = static_cast<std::size_t>(i);
        choose_part(parts[at], *packed[at], input, choices, logits + task * most);
      }
    });
  }

 private:
  void choose_part(const RowRange& part, const Linear& packed, const Input& input, Choice* choices,
                   float* logits) const {
    const Index count = packed.outputs, stride = round_up(count, kStrip);
    layers_.multiply(packed, input.from(part.first), part.count, {0, packed.blocks()}, {}, {logits, stride});
    for (Index row = 0; row < part.count; ++row)
      std::fill(logits + row * stride + count, logits + (row + 1) * stride, kNoLogit);
    for (Index row = part.first; row < part.first + part.count; ++row)
      choices[row].best_count = std::min(out_.count, count);
    for (Index strip = 0; strip < strip_count(count); ++strip)
      kernels_.choose_strip({logits + strip * kStrip, stride}, part.count, strip, choices + part.first);
    for (Index row = part.first; row < part.first + part.count; ++row) finish(row, choices[row]);
    for (Index i = 0; i < scored_.count; ++i)
      if (part.has(scored_.rows[i])) copy_logits(i, logits + (scored_.rows[i] - part.first) * stride);
  }

  // The rest of more best tokens than candidates has the score -inf.
  void finish(Index row, Choice& choice) const {
    const std::int32_t* list = candidates_.list(row);
    const BestTokens out = out_.from(row);
    const Index found = choice.best_count;
    out.log_sums[0] = kernels_.choose_finish(choice, candidates_.count(row), out.scores, out.ids);
    for (Index i = 0; i < found; ++i) out.ids[i] = list[out.ids[i]];
    std::fill(out.ids + found, out.ids + out.count, list[0]);
    std::fill(out.scores + found, out.scores + out.count, std::isnan(out.log_sums[0]) ? out.log_sums[0] : kNoLogit);
  }

  // All others have the logit -inf.
  void copy_logits(Index place, const float* logits) const {
    const Index row = scored_.rows[place], count = candidates_.count(row);
    float* to = scored_.logits + place * vocabulary_.outputs;
    std::fill_n(to, vocabulary_.outputs, kNoLogit);
    for (Index i = 0; i < count; ++i) to[candidates_.list(row)[i]] = logits[i];
  }

  const Linear& vocabulary_;
  std::uint64_t number_;
  const Candidates& candidates_;
  const Layers& layers_;
  const Kernels& kernels_;
  const ScoredRows& scored_;
  const BestTokens& out_;
};

}  // namespace dragoman
