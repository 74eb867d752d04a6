// Chooses the next token of every row by the options of its sequence, and finishes hypotheses.
//
// `plan` describes the next step to the model, and `advance` evaluates its scores. A sequence whose rows are all gone
// is over.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "loop/beam.hpp"
#include "loop/constraints.hpp"
#include "loop/ranking.hpp"
#include "loop/sampling.hpp"
#include "loop/sequence.hpp"
#include "loop/step_model.hpp"

namespace dragoman {

class Search {
 public:
  Search(const ModelShape& shape, int64_t begin_id, int64_t end_id, std::vector<int64_t> continuing_ids)
      : shape_(shape), begin_id_(begin_id), end_id_(end_id), continuing_ids_(std::move(continuing_ids)) {}

  // Fills the batch with the rows of the sequences, in their order.
  void plan(const std::vector<SequencePointer>& running, StepBatch& batch) {
    batch.clear();
    plans_.clear();
    std::vector<int32_t> changed, unchanged;
    bool listed = false;
    for (const SequencePointer& sequence : running) {
      const SearchOptions& options = sequence->options;
      batch.aligned = batch.aligned || options.keeps_attention();
      listed = listed || !sequence->candidates.empty();
      for (const Row& row : sequence->rows) {
        RowPlan plan;
        plan.forced_id = options.forced_id(row.target_ids.size());
        if (plan.forced_id == kNoToken) {
          plan.constraint = constraint_of(options, row.target_ids, end_id_);
          batch.best_count = std::max(batch.best_count, best_count(options));
        }
        const auto number = static_cast<int32_t>(plans_.size());
        if (in_step(*sequence, plan.constraint)) forbid(plan, number, batch);
        if (plan.constraint.changes()) {
          changed.push_back(number);
        } else if (plan.forced_id != kNoToken || options.sampled()) {
          unchanged.push_back(number);
        }
        plans_.push_back(std::move(plan));
        batch.token_ids.push_back(row.target_ids.empty() ? begin_id_ : row.target_ids.back());
        batch.positions.push_back(row.position());
        batch.target_slots.push_back(row.slot);
        batch.source_slots.push_back(sequence->source_slot);
        batch.source_lengths.push_back(sequence->source_length());
        batch.candidates.push_back(&sequence->candidates);
      }
    }
    if (!listed) batch.candidates.clear();
    std::sort(batch.forbidden.begin(), batch.forbidden.end());
    changed_rows_ = static_cast<int32_t>(changed.size());
    batch.scored_rows = std::move(changed);
    batch.scored_rows.insert(batch.scored_rows.end(), unchanged.begin(), unchanged.end());
    for (size_t index = 0; index < batch.scored_rows.size(); ++index)
      plans_[static_cast<size_t>(batch.scored_rows[index])].logits_index = static_cast<int32_t>(index);
  }

  // Adds a token to each row, and removes rows that end. A broken row ends with the score NaN.
  void advance(const std::vector<SequencePointer>& running, const StepBatch& batch, const StepScores& scores,
               StepModel& model) {
    Choices changed;
    if (changed_rows_ > 0) {
      constrain(running, scores.logits);
      changed = model.choose(changed_rows_, batch.best_count);
    }
    collect_scores(batch, scores, changed);
    size_t first = 0;
    for (const SequencePointer& sequence : running) {
      const size_t rows = sequence->rows.size();
      sequence->decoded_tokens += static_cast<int64_t>(rows);
      if (sequence->options.rows() > 1 && !sequence->options.sampled()) {
        advance_beam(*sequence, first);
      } else {
        advance_rows(*sequence, first);
      }
      first += rows;
    }
  }

  // Results of the last `advance`, for the caller to clear.
  std::vector<Branch> branches;
  std::vector<int32_t> freed_slots;

 private:
  static constexpr float kBroken = std::numeric_limits<float>::quiet_NaN();

  // What `plan` found out about a row.
  struct RowPlan {
    int64_t forced_id = kNoToken;
    Constraint constraint;
    int32_t logits_index = -1;  // in the logits of the step
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

  static constexpr size_t kMaxForbidden = 16;  // tokens that a step looks up for a row

  // Whether the step itself forbids the tokens, so that it need not write logits to choose from once more. Some other
  // token must be left. A changed row with a shortlist adds in another order: that of all tokens.
  bool in_step(const Sequence& sequence, const Constraint& constraint) const {
    const size_t count = constraint.forbidden_ids.size() + (constraint.end_is_early ? 1 : 0);
    return shape_.forbids && count <= std::min(kMaxForbidden, static_cast<size_t>(shape_.vocabulary) - 1) &&
           sequence.candidates.empty() && constraint.penalized_ids.empty() && !constraint.begins_word;
  }

  void forbid(RowPlan& plan, int32_t row, StepBatch& batch) const {
    if (plan.constraint.end_is_early) plan.constraint.forbidden_ids.push_back(end_id_);
    for (const int64_t id : plan.constraint.forbidden_ids) batch.forbidden.emplace_back(static_cast<int32_t>(id), row);
    plan.constraint = {};
  }

  int32_t best_count(const SearchOptions& options) const {
    if (options.sampled()) return 0;
    return options.beam_size == 1 ? 1 : std::min(2 * options.beam_size, shape_.vocabulary);
  }

  void collect_scores(const StepBatch& batch, const StepScores& scores, const Choices& changed) {
    const auto vocabulary = static_cast<size_t>(shape_.vocabulary), count = static_cast<size_t>(batch.best_count);
    const size_t attention = static_cast<size_t>(shape_.alignment_heads) * static_cast<size_t>(shape_.source_capacity);
    scores_.clear();
    for (size_t number = 0; number < plans_.size(); ++number) {
      RowScores row;
      row.plan = &plans_[number];
      const int32_t index = row.plan->logits_index;
      if (index >= 0) row.logits = scores.logits + static_cast<size_t>(index) * vocabulary;
      const bool again = index >= 0 && index < changed_rows_;
      const Choices& choices = again ? changed : scores.choices;
      const size_t at = again ? static_cast<size_t>(index) : number;
      row.log_sum = choices.log_sums[at];
      row.best_scores = choices.best_scores + at * count;
      row.best_ids = choices.best_ids + at * count;
      if (batch.aligned) row.alignments = scores.alignments + number * attention;
      scores_.push_back(row);
    }
  }

  void constrain(const std::vector<SequencePointer>& running, float* logits) const {
    size_t number = 0;
    for (const SequencePointer& sequence : running) {
      for (size_t rank = 0; rank < sequence->rows.size(); ++rank, ++number) {
        const RowPlan& plan = plans_[number];
        if (!plan.constraint.changes()) continue;
        float* row = logits + static_cast<std::ptrdiff_t>(plan.logits_index) * shape_.vocabulary;
        apply(plan.constraint, sequence->options.repetition_penalty, continuing_ids_, end_id_, row, shape_.vocabulary);
      }
    }
  }

  Token choose(const Sequence& sequence, const Row& row, const RowScores& scores) {
    const SearchOptions& options = sequence.options;
    int64_t id = scores.plan->forced_id;
    if (id == kNoToken && options.sampled()) {
      if (std::isnan(scores.log_sum)) return {end_id_, kBroken};
      const auto position = static_cast<uint64_t>(row.position());
      const double number = uniform(options.seed, row.number, position);
      id = sampler_.draw(scores.logits, shape_.vocabulary, options, number);
    }
    if (id == kNoToken) return {scores.best_ids[0], scores.best_scores[0]};
    return {id, row.target_ids.size() < options.start_tokens ? 0 : scores.score_of(id)};
  }

  // Greedy search has one row, and sampling a row for each sample.
  void advance_rows(Sequence& sequence, size_t first) {
    for (size_t rank = 0; rank < sequence.rows.size(); ++rank) {
      Row& row = sequence.rows[rank];
      const RowScores& scores = scores_[first + rank];
      const Token token = choose(sequence, row, scores);
      if (token.id == end_id_ || std::isnan(token.score)) {
        finish(sequence, row, &token, &scores);
        freed_slots.push_back(row.slot);
        continue;
      }
      record(sequence, row, token, scores);
      (row.position() == sequence.options.max_target_tokens ? cut_ : going_).push_back(std::move(row));
    }
    for (const Row& row : cut_) {
      finish(sequence, row, nullptr, nullptr);
      freed_slots.push_back(row.slot);
    }
    cut_.clear();
    sequence.rows.swap(going_);
    going_.clear();
  }

  void advance_beam(Sequence& sequence, size_t first) {
    const auto beam_size = static_cast<size_t>(sequence.options.beam_size);
    bool over = false;
    if (!expand(sequence, first)) {
      const Token broken{end_id_, kBroken};
      finish(sequence, sequence.rows[0], &broken, &scores_[first]);
      over = true;
    } else {
      for (size_t index = 0; index < std::min(beam_size, candidates_.size()); ++index) {
        const Expansion& candidate = candidates_[index];
        if (candidate.token_id != end_id_) continue;
        const Token end{candidate.token_id, candidate.token_score};
        finish(sequence, sequence.rows[candidate.origin], &end, &scores_[first + candidate.origin]);
      }
      over = sequence.finished.size() >= sequence.options.enough_hypotheses();
    }
    if (!over) {
      const std::vector<Expansion> following = survivors(candidates_, beam_size, end_id_);
      place(sequence, following, branches);
      for (size_t rank = 0; rank < following.size(); ++rank) {
        const Expansion& chosen = following[rank];
        record(sequence, sequence.rows[rank], {chosen.token_id, chosen.token_score}, scores_[first + chosen.origin]);
      }
      over = sequence.rows.empty() || sequence.rows[0].position() == sequence.options.max_target_tokens;
      if (over) {
        for (const Row& row : sequence.rows) finish(sequence, row, nullptr, nullptr);
      }
    }
    if (!over) return;
    for (const Row& row : sequence.rows) sequence.spare_slots.push_back(row.slot);
    sequence.rows.clear();
  }

  // Sets the best expansions of all hypotheses; returns false if a row is broken.
  bool expand(const Sequence& sequence, size_t first) {
    candidates_.clear();
    const auto beam_size = static_cast<size_t>(sequence.options.beam_size);
    const auto per_row = static_cast<size_t>(best_count(sequence.options));
    for (size_t rank = 0; rank < sequence.rows.size(); ++rank) {
      const RowScores& scores = scores_[first + rank];
      const int64_t forced_id = scores.plan->forced_id;
      const bool forced = forced_id != kNoToken;
      const bool starts = sequence.rows[rank].target_ids.size() < sequence.options.start_tokens;
      for (size_t index = 0; index < (forced ? 1 : per_row); ++index) {
        const int64_t id = forced ? forced_id : scores.best_ids[index];
        const float score = starts ? 0 : forced ? scores.score_of(id) : scores.best_scores[index];
        if (std::isnan(score)) return false;
        const double sum = sequence.rows[rank].score + static_cast<double>(score);
        if (sum == -std::numeric_limits<double>::infinity()) break;
        if (!keep(candidates_, {sum, rank, id, score}, beam_size)) break;  // the row's further ones are not better
      }
    }
    return true;
  }

  // Stores the next token of a row, with the attention of the step that chose it.
  void record(const Sequence& sequence, Row& row, Token token, const RowScores& scores) {
    row.target_ids.push_back(token.id);
    row.token_scores.push_back(token.score);
    row.score += static_cast<double>(token.score);
    const SearchOptions& options = sequence.options;
    if (!options.keeps_attention()) return;
    mean_attention(sequence, scores);
    if (options.alignments != 0) row.alignments.insert(row.alignments.end(), attention_.begin(), attention_.end());
    if (options.coverage_penalty > 0) add_attention(row.attention_sums);
  }

  // Appends the hypothesis of a row; `end` is its end token, null if it was cut at its limit.
  void finish(Sequence& sequence, const Row& row, const Token* end, const RowScores* scores) {
    Hypothesis hypothesis = row;
    hypothesis.reason = end == nullptr ? FinishReason::kLength : FinishReason::kEnd;
    if (end != nullptr) {
      hypothesis.score += static_cast<double>(end->score);
      hypothesis.token_scores.push_back(end->score);
    }
    double covered = 0;
    if (sequence.options.coverage_penalty > 0) {
      std::vector<float> sums = row.attention_sums;
      if (end != nullptr) {
        mean_attention(sequence, *scores);
        add_attention(sums);
      }
      covered = coverage(sums);
    }
    hypothesis.normalized_score =
        normalized_score(hypothesis.score, hypothesis.token_scores.size(), covered, sequence.options);
    sequence.finished.push_back(std::move(hypothesis));
  }

  // Adds the mean to the sums of a row, which are empty before its first token.
  void add_attention(std::vector<float>& sums) const {
    sums.resize(attention_.size(), 0.0f);
    for (size_t token = 0; token < sums.size(); ++token) sums[token] += attention_[token];
  }

  // Sets the mean of the alignment heads for the tokens of the source.
  void mean_attention(const Sequence& sequence, const RowScores& scores) {
    attention_.assign(sequence.source_ids.size(), 0.0f);
    for (int32_t head = 0; head < shape_.alignment_heads; ++head) {
      const float* weights = scores.alignments + static_cast<std::ptrdiff_t>(head) * shape_.source_capacity;
      for (size_t token = 0; token < attention_.size(); ++token) attention_[token] += weights[token];
    }
    for (float& each : attention_) each /= static_cast<float>(shape_.alignment_heads);
  }

  ModelShape shape_;
  int64_t begin_id_;
  int64_t end_id_;
  std::vector<int64_t> continuing_ids_;  // tokens that continue a word
  std::vector<RowPlan> plans_;
  std::vector<RowScores> scores_;
  std::vector<Expansion> candidates_;  // of one beam
  std::vector<Row> going_, cut_;       // of one sequence, empty otherwise
  int32_t changed_rows_ = 0;  // the first of the logits
  std::vector<float> attention_;
  Sampler sampler_;
};

}  // namespace dragoman
