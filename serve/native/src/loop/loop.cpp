#include "loop/loop.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "loop/records.hpp"

namespace dragoman {
namespace {

void require(bool valid, const char* problem) {
  if (!valid) throw std::invalid_argument(problem);
}

bool all_below(const std::vector<int64_t>& ids, int64_t vocabulary) {
  return std::all_of(ids.begin(), ids.end(), [=](int64_t id) { return id >= 0 && id < vocabulary; });
}

}  // namespace

Loop::Loop(const SchedulerConfig& scheduler, const EngineConfig& engine, const Limits& limits, int descriptor,
           Clock clock)
    : scheduler_config_(scheduler),
      engine_config_(engine),
      limits_(limits),
      clock_(std::move(clock)),
      completions_(std::make_shared<Completions>(descriptor)),
      scheduler_(std::make_shared<Scheduler>(scheduler, clock_, completions_)) {
  require(scheduler.engines >= 1 && scheduler.engine_rows >= 1, "engines: expected at least one with one row");
  require(all_below({engine.begin_id, engine.end_id}, limits.vocabulary), "special tokens: not in the vocabulary");
}

void Loop::add_engine(std::shared_ptr<StepModel> model) {
  const ModelShape& shape = model->shape();
  require(shape.slots >= scheduler_config_.engine_rows, "model: fewer slots than the rows of an engine");
  require(shape.vocabulary == limits_.vocabulary, "model: another vocabulary");
  require(shape.source_capacity >= limits_.max_source_tokens, "model: sources are too short");
  require(shape.target_capacity >= limits_.max_target_tokens, "model: targets are too short");
  require(!limits_.aligned || shape.alignment_heads > 0, "model: no alignment heads");
  const auto number = static_cast<int32_t>(engines_.size());
  engines_.push_back(
      std::make_shared<Engine>(number, engine_config_, std::move(model), scheduler_, completions_, clock_));
}

bool Loop::submit(const uint8_t* bytes, size_t size) {
  std::vector<SequencePointer> sequences;
  for (size_t position = 0; position < size;) {
    sequences.push_back(read_sequence(bytes, size, position, engine_config_.end_id));
    check(*sequences.back());
  }
  return scheduler_->submit(sequences);
}

void Loop::check(const Sequence& sequence) const {
  const SearchOptions& options = sequence.options;
  require(options.rows() <= scheduler_config_.engine_rows, "sequence: more rows than an engine has");
  require(sequence.source_length() <= limits_.max_source_tokens, "source: too long");
  require(options.max_target_tokens <= limits_.max_target_tokens, "max_target_tokens: too many");
  require(all_below(options.suppressed_ids, limits_.vocabulary), "suppressed_ids: not in the vocabulary");
  require(all_below(options.forced_ids, limits_.vocabulary), "target_prefix: not in the vocabulary");
  const bool attention = options.alignments || options.coverage_penalty > 0;
  require(!attention || limits_.aligned, "alignments: the model returns none");
}

}  // namespace dragoman
