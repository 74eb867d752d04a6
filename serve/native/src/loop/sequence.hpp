// One source sequence from admission to its last token.
//
// The scheduler's lock guards state, position in the queue, engine and time of the start. The engine that runs the sequence owns what
// follows them. The other fields do not change after submission, except for the flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "loop/options.hpp"
#include "loop/step_model.hpp"

namespace dragoman {

constexpr double kNever = std::numeric_limits<double>::infinity();

enum class State : uint8_t { kWaiting, kRunning, kFinished };

// Why a sequence has no translation. Python maps the numbers to its errors.
enum class Failure : uint32_t {
  kNone,
  kCancelled,
  kDeadline,
  kQueueTimeout,
  kDraining,
  kInternal,
  kInvalidProbabilities,
};

// How a hypothesis ended.
enum class FinishReason : uint32_t { kEnd, kLength };

// A finished translation of T tokens; serve/search/hypothesis.py documents the fields.
struct Hypothesis {
  std::vector<int64_t> target_ids;
  std::vector<float> token_scores;
  std::vector<float> alignments;  // [T, source length] if requested
  double score = 0;  // sum of the token scores
  double normalized_score = 0;
  FinishReason reason = FinishReason::kEnd;
};

// A live hypothesis: one row of each step.
struct Row : Hypothesis {
  int32_t slot = 0;
  uint64_t number = 0;                // of the sample
  std::vector<float> attention_sums;  // [source length] if there is a coverage penalty

  int32_t position() const { return static_cast<int32_t>(target_ids.size()); }
};

// The position in the queue.
struct QueuePosition {
  int64_t round = 0;
  uint64_t number = 0;      // in the order of submission
  int64_t passed_rows = 0;  // rows that passed the sequence while it was too wide
};

struct Sequence : Submission {
  std::vector<int64_t> source_ids;
  SearchOptions options;
  std::atomic<bool> cancelled{false};
  // How many sequences of the submission have not ended, if its ends are of use only together; `Completions` guards it.
  std::shared_ptr<int64_t> left;

  State state = State::kWaiting;
  QueuePosition queued;
  int32_t engine = -1;
  double started_seconds = -1;  // not started

  double encoded_seconds = 0;
  double first_token_seconds = 0;
  int64_t decoded_tokens = 0;  // computed in all rows
  int32_t unread_steps = 0;    // that have started
  int32_t source_slot = -1;
  CandidateList candidates;          // empty: the whole vocabulary
  std::vector<Row> rows;             // best first in a beam
  std::vector<int32_t> spare_slots;  // target slots of the beam without a hypothesis
  std::vector<Hypothesis> finished;

  int32_t source_length() const { return static_cast<int32_t>(source_ids.size()); }

  // An upper bound of its tokens in all rows.
  int64_t max_tokens() const {
    return int64_t{options.rows()} * (int64_t{source_length()} + options.max_target_tokens);
  }

  // The time after which a start is useless.
  double latest_start_seconds() const { return std::min(deadline_seconds, start_by_seconds); }

  // Why the sequence must be dropped, if it must.
  Failure abandonment(double now_seconds) const {
    if (cancelled) return Failure::kCancelled;
    return deadline_seconds <= now_seconds ? Failure::kDeadline : Failure::kNone;
  }
};

using SequencePointer = std::shared_ptr<Sequence>;

}  // namespace dragoman
