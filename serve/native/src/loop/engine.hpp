// Continuous batching: one thread advances every running sequence by one token at each step.
//
// Sequences join and leave between steps. The scheduler decides which ones join, the model computes, `search` chooses
// tokens. A failing model ends sequences, never the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "loop/counters.hpp"
#include "loop/records.hpp"
#include "loop/scheduler.hpp"
#include "loop/search.hpp"
#include "loop/step_model.hpp"

namespace dragoman {

struct EngineConfig {
  int64_t begin_id = 0;
  int64_t end_id = 0;
  std::vector<double> seconds_bounds;
  std::vector<double> sequence_bounds;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(int32_t number, const EngineConfig& config, std::shared_ptr<StepModel> model,
         std::shared_ptr<Scheduler> scheduler, std::shared_ptr<Completions> completions, Clock clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start();
  // Ends the thread after its current step, and fails all sequences. Returns false if the thread does not end in time:
  // it is abandoned, and lives on with what it needs.
  bool stop(double timeout_seconds);
  // Advances every sequence by one token.
  void step();

  // When the current step started; negative: none.
  double step_started_seconds() const { return step_started_seconds_; }
  // False after `kUnhealthyFailures` failures in a row, until a step succeeds.
  bool healthy() const { return failures_ < kUnhealthyFailures; }
  // How often the engine became unhealthy.
  int64_t failure_count() const { return failure_count_; }

  PhaseCounters encode_counters;
  PhaseCounters decode_counters;
  std::atomic<uint64_t> search_nanoseconds{0};

 private:
  // One failure may have its cause in one input; several in a row point to the model.
  static constexpr int64_t kUnhealthyFailures = 3;
  // More source tokens in one run of the encoder leave the processor's caches.
  static constexpr size_t kEncodedTokens = 256;

  void run();
  void publish();
  void prefill(const std::vector<SequencePointer>& admitted);
  void encode(const SequencePointer* sequences, size_t count);
  void decode();
  void notify(double now_seconds);
  void retire(double now_seconds);
  void finish(Sequence& sequence, double now_seconds);
  void fail_running(Failure failure);
  void release_slots(Sequence& sequence);
  void take_slots(Sequence& sequence);
  void free_all_slots();
  void count_failure(const char* event, size_t count);

  const int32_t number_;
  const EngineConfig config_;
  const std::shared_ptr<StepModel> model_;
  const std::shared_ptr<Scheduler> scheduler_;
  const std::shared_ptr<Completions> completions_;
  const Clock clock_;

  // Of the engine's thread.
  Search search_;
  StepBatch step_batch_;
  EncodeBatch encode_batch_;
  std::vector<SequencePointer> running_;
  std::vector<int32_t> free_target_slots_;
  std::vector<int32_t> free_source_slots_;
  Records records_;
  bool urgent_ = false;  // records that wake Python at once

  std::atomic<double> step_started_seconds_{-1};
  std::atomic<int64_t> failures_{0};
  std::atomic<int64_t> failure_count_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::mutex mutex_;  // guards `ended_`
  std::condition_variable changed_;
  bool ended_ = true;
};

}  // namespace dragoman
