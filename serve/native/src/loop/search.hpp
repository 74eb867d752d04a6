// Chooses the next token of every row by the options of its sequence, and finishes hypotheses.
//
// `plan` describes the next step to the model, and `advance` evaluates its scores. A sequence whose rows are all gone
// is over.
#pragma once

#include <cstdint>
#include <vector>

#include "loop/beam.hpp"
#include "loop/constraints.hpp"
#include "loop/sampling.hpp"
#include "loop/sequence.hpp"
#include "loop/step_model.hpp"

namespace dragoman {

class Search {
 public:
  Search(const ModelShape& shape, int64_t begin_id, int64_t end_id)
      : shape_(shape), begin_id_(begin_id), end_id_(end_id) {}

  // Fills the batch with the rows of the sequences, in their order.
  void plan(const std::vector<SequencePointer>& running, StepBatch& batch);

  // Adds a token to each row, and removes rows that end. A broken row ends with the score NaN.
  void advance(const std::vector<SequencePointer>& running, const StepBatch& batch, const StepScores& scores,
               StepModel& model);

  // Results of the last `advance`, for the caller to clear.
  std::vector<Branch> branches;
  std::vector<int32_t> freed_slots;

 private:
  // What `plan` found out about a row.
  struct RowPlan {
    int64_t forced_id = kNoToken;
    Constraint constraint;
    int32_t logits_place = -1;  // in the logits of the step
  };

  // The scores of the next token of a row.
  struct RowScores {
    const RowPlan* plan = nullptr;
    const float* logits = nullptr;  // null unless wanted
    float log_sum = 0;
    const float* best_scores = nullptr;
    const int64_t* best_ids = nullptr;
    const float* alignments = nullptr;  // [A, S]

    float score_of(int64_t id) const { return logits[id] - log_sum; }
  };

  struct Token {
    int64_t id = kNoToken;
    float score = 0;
  };

  int32_t best_count(const SearchOptions& options) const;
  void collect_scores(const StepBatch& batch, const StepScores& scores, const Choices& changed);
  void constrain(const std::vector<SequencePointer>& running, float* logits) const;
  Token choose(const Sequence& sequence, const Row& row, const RowScores& scores);
  void advance_rows(Sequence& sequence, size_t first);
  void advance_beam(Sequence& sequence, size_t first);
  bool expand(const Sequence& sequence, size_t first);
  void record(const Sequence& sequence, Row& row, Token token, const RowScores& scores);
  void finish(Sequence& sequence, const Row& row, const Token* end, const RowScores* scores);
  void mean_attention(const Sequence& sequence, const RowScores& scores);

  ModelShape shape_;
  int64_t begin_id_;
  int64_t end_id_;
  std::vector<RowPlan> plans_;
  std::vector<RowScores> scores_;
  std::vector<Expansion> candidates_;  // of one beam
  std::vector<Row> going_, cut_;       // of one sequence, empty otherwise
  int32_t changed_rows_ = 0;  // the first of the logits
  std::vector<float> attention_;
  Sampler sampler_;
};

}  // namespace dragoman
