// The search options of one sequence; serve/search/options.py documents them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "loop/submission_record.hpp"

namespace dragoman {

constexpr int64_t kNoToken = -1;

struct SearchOptions : SearchNumbers {
  std::vector<int64_t> suppressed_ids;
  std::vector<int64_t> forced_ids;  // the target prefix and a forced end token
  uint32_t start_tokens = 0;        // first forced tokens, which have score 0
  std::vector<int64_t> candidate_ids;  // with a shortlist: further candidates than its own and the forced ones
  bool shortlist = false;           // the translation may use candidates alone
  bool new_word = false;            // no token that continues a word may follow the prefix

  bool sampled() const { return temperature > 0; }

  int32_t rows() const { return sampled() ? hypotheses : beam_size; }

  // Finished hypotheses that end a beam (Kasai et al. 2022, arXiv:2204.05424); halves round to even.
  size_t enough_hypotheses() const {
    return static_cast<size_t>(std::max(1.0, std::nearbyint(patience * beam_size)));
  }

  bool keeps_attention() const { return alignments != 0 || coverage_penalty > 0; }

  // Whether each step chooses the likeliest token of one row, whatever its tokens are.
  bool plain() const {
    return beam_size == 1 && !sampled() && forced_ids.empty() && suppressed_ids.empty() && !new_word && !shortlist &&
           repetition_penalty == 1 && no_repeat_ngram_tokens == 0 && min_target_tokens == 0 && !keeps_attention();
  }

  bool begins_word(size_t position) const { return new_word && position == forced_ids.size(); }

  int64_t forced_id(size_t position) const {
    return position < forced_ids.size() ? forced_ids[position] : kNoToken;
  }
};

}  // namespace dragoman
