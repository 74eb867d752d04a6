// A step that a device runs while the host reads the one before it.
//
// Whether a row ended is known only when its step is read, so the step after it computes one token too many.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "loop/sequence.hpp"
#include "loop/step_model.hpp"

namespace dragoman {

// The sequences are plain (`SearchOptions::plain`): they have one row each, in the order of the rows of the step.
class UnreadStep {
 public:
  // Starts the next step of all sequences that may have one. Returns no rows if none may.
  static UnreadStep start(const std::vector<SequencePointer>& running, int64_t begin_id, StepModel& model) {
    UnreadStep step;
    StepBatch batch;
    batch.best_count = 1;
    for (const SequencePointer& sequence : running) {
      const Row& row = sequence->rows[0];
      const int32_t position = row.position() + sequence->unread_steps;
      if (position >= sequence->options.max_target_tokens) continue;
      const bool read = sequence->unread_steps == 0;
      batch.token_ids.push_back(!read ? kUnreadToken : row.target_ids.empty() ? begin_id : row.target_ids.back());
      batch.positions.push_back(position);
      batch.target_slots.push_back(row.slot);
      batch.source_slots.push_back(sequence->source_slot);
      batch.source_lengths.push_back(sequence->source_length());
      step.sequences_.push_back(sequence);
    }
    if (step.empty()) return step;
    step.number_ = model.launch(batch);
    for (const SequencePointer& sequence : step.sequences_) ++sequence->unread_steps;
    return step;
  }

  bool empty() const { return sequences_.empty(); }

  // Waits for the step. Returns the sequences that have not ended meanwhile.
  std::vector<SequencePointer> read(StepModel& model) {
    const Choices choices = model.collect(number_);
    std::vector<SequencePointer> live;
    for (size_t index = 0; index < sequences_.size(); ++index) {
      --sequences_[index]->unread_steps;
      if (sequences_[index]->rows.empty()) continue;
      log_sums_.push_back(choices.log_sums[index]);
      best_scores_.push_back(choices.best_scores[index]);
      best_ids_.push_back(choices.best_ids[index]);
      live.push_back(std::move(sequences_[index]));
    }
    return live;
  }

  // The choices of the sequences that `read` returned.
  StepScores scores() const {
    return {nullptr, {log_sums_.data(), best_scores_.data(), best_ids_.data()}, nullptr};
  }

 private:
  int32_t number_ = 0;
  std::vector<SequencePointer> sequences_;
  std::vector<float> log_sums_, best_scores_;
  std::vector<int64_t> best_ids_;
};

}  // namespace dragoman
