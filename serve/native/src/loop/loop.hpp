// The scheduler and the engines of one model, behind the C interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "loop/completions.hpp"
#include "loop/engine.hpp"
#include "loop/scheduler.hpp"
#include "loop/step_model.hpp"

namespace dragoman {

// The limits of the model, which every submitted sequence keeps.
struct Limits {
  int64_t vocabulary = 0;
  int64_t max_source_tokens = 0;
  int64_t max_target_tokens = 0;
  bool aligned = false;  // the model returns alignments
};

class Loop {
 public:
  Loop(const SchedulerConfig& scheduler, const EngineConfig& engine, const Limits& limits, int descriptor,
       Clock clock);

  // Adds an engine without starting it. Throws std::invalid_argument if the model does not keep the limits.
  void add_engine(std::shared_ptr<StepModel> model);
  // Queues the sequences of these records (`read_sequence`), or none: it returns false after `drain`. Throws
  // std::invalid_argument if a record is invalid.
  bool submit(const uint8_t* bytes, size_t size);

  Scheduler& scheduler() { return *scheduler_; }
  Completions& completions() { return *completions_; }
  // Throws std::out_of_range.
  Engine& engine(int64_t number) { return *engines_.at(static_cast<size_t>(number)); }

 private:
  void check(const Sequence& sequence) const;

  const SchedulerConfig scheduler_config_;
  const EngineConfig engine_config_;
  const Limits limits_;
  const Clock clock_;
  const std::shared_ptr<Completions> completions_;
  const std::shared_ptr<Scheduler> scheduler_;
  std::vector<std::shared_ptr<Engine>> engines_;
};

}  // namespace dragoman
