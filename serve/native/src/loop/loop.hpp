// The scheduler and the engines of one model, behind the C interface.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "loop/completions.hpp"
#include "loop/engine.hpp"
#include "loop/records.hpp"
#include "loop/scheduler.hpp"
#include "loop/shortlist.hpp"
#include "loop/step_model.hpp"

namespace dragoman {

inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Loop {
 public:
  // `continuing_ids`: the tokens that continue a word.
  Loop(const LoopConfig& config, std::vector<int64_t> continuing_ids, Clock clock)
      : config_(config),
        continuing_ids_(std::move(continuing_ids)),
        clock_(std::move(clock)),
        completions_(std::make_shared<Completions>(static_cast<int>(config.descriptor))),
        scheduler_(std::make_shared<Scheduler>(config, clock_, completions_)) {
    require(config.engines >= 1 && config.engine_rows >= 1, "engines: expected at least one with one row");
    require(all_below({config.begin_id, config.end_id}, config.vocabulary), "special tokens: not in the vocabulary");
    require(all_below(continuing_ids_, config.vocabulary), "continuing_ids: not in the vocabulary");
    for (const Bounds* bounds : {&config.seconds_bounds, &config.sequence_bounds})
      require(bounds->count <= std::size(bounds->values), "bounds: too many");
    if (config.shortlist != nullptr) shortlist_ = std::make_shared<Shortlist>(config.shortlist, config.vocabulary);
  }

  // Adds an engine without starting it. Throws std::invalid_argument if the model does not keep the limits.
  void add_engine(std::shared_ptr<StepModel> model) {
    const ModelShape& shape = model->shape();
    require(shape.slots >= config_.engine_rows, "model: fewer slots than the rows of an engine");
    require(shape.vocabulary == config_.vocabulary, "model: another vocabulary");
    require(shape.source_capacity >= config_.max_source_tokens, "model: sources are too short");
    require(shape.target_capacity >= config_.max_target_tokens, "model: targets are too short");
    require(config_.aligned == 0 || shape.alignment_heads > 0, "model: no alignment heads");
    const auto number = static_cast<int32_t>(engines_.size());
    engines_.push_back(std::make_shared<Engine>(number, config_, std::move(model), scheduler_, completions_, clock_,
                                                continuing_ids_, shortlist_));
  }

  // Queues the sequences of these records (`read_sequence`), or none: it returns false after `drain`. Throws
  // std::invalid_argument if a record is invalid.
  bool submit(const uint8_t* bytes, size_t size) {
    std::vector<SequencePointer> sequences;
    const auto left = std::make_shared<int64_t>(0);
    for (size_t position = 0; position < size;) {
      sequences.push_back(read_sequence(bytes, size, position, config_.end_id, left));
      check(*sequences.back());
      if (sequences.back()->left != nullptr) ++*left;
    }
    return scheduler_->submit(sequences);
  }

  Scheduler& scheduler() { return *scheduler_; }
  Completions& completions() { return *completions_; }
  // Throws std::out_of_range.
  Engine& engine(int64_t number) { return *engines_.at(static_cast<size_t>(number)); }

 private:
  static void require(bool valid, const char* problem) {
    if (!valid) throw std::invalid_argument(problem);
  }

  static bool all_below(const std::vector<int64_t>& ids, int64_t vocabulary) {
    return std::all_of(ids.begin(), ids.end(), [=](int64_t id) { return id >= 0 && id < vocabulary; });
  }

  void check(const Sequence& sequence) const {
    const SearchOptions& options = sequence.options;
    require(options.rows() <= config_.engine_rows, "sequence: more rows than an engine has");
    require(sequence.source_length() <= config_.max_source_tokens, "source: too long");
    require(options.max_target_tokens <= config_.max_target_tokens, "max_target_tokens: too many");
    require(all_below(options.suppressed_ids, config_.vocabulary), "suppressed_ids: not in the vocabulary");
    require(all_below(options.forced_ids, config_.vocabulary), "target_prefix: not in the vocabulary");
    require(all_below(options.candidate_ids, config_.vocabulary), "candidate_ids: not in the vocabulary");
    if (options.shortlist) {
      require(shortlist_ != nullptr, "shortlist: the model has none");
      for (const int64_t id : sequence.source_ids) require(shortlist_->has(id), "source: not in the shortlist");
    }
    require(!options.keeps_attention() || config_.aligned != 0, "alignments: the model returns none");
  }

  const LoopConfig config_;
  const std::vector<int64_t> continuing_ids_;
  const Clock clock_;
  const std::shared_ptr<Completions> completions_;
  const std::shared_ptr<Scheduler> scheduler_;
  std::shared_ptr<const Shortlist> shortlist_;  // null if the model has none
  std::vector<std::shared_ptr<Engine>> engines_;
};

}  // namespace dragoman
