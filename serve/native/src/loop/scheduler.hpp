// Decides which sequences start, and when: a queue in front of the rows of one or more engines.
//
// Python submits sequences; each engine admits them into its free rows and reports finished ones. Every accepted
// sequence is finished exactly once. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loop/completions.hpp"
#include "loop/fair_queue.hpp"
#include "loop/records.hpp"
#include "loop/sequence.hpp"

namespace dragoman {

// Returns the time in seconds, on the clock of the deadlines.
using Clock = std::function<double()>;

constexpr int64_t kUnbounded = -1;

struct SchedulerConfig {
  int64_t engine_rows = 1;
  int64_t engines = 1;
  int64_t prefill_token_budget = 1;            // source tokens that start at once; a longer sequence starts alone
  int64_t running_token_budget = kUnbounded;  // tokens that run together; a larger sequence runs alone
};

struct Load {
  int64_t waiting = 0;
  int64_t waiting_rows = 0;
  int64_t running = 0;
  int64_t running_rows = 0;
  int64_t most_running = 0;  // at once, since the start
};

class Scheduler {
 public:
  Scheduler(const SchedulerConfig& config, Clock clock, std::shared_ptr<Completions> completions)
      : config_(config),
        clock_(std::move(clock)),
        completions_(std::move(completions)),
        // As many rows may pass a wide sequence as an engine has: about one turn of its rows.
        waiting_(config.engine_rows) {}

  // Queues all sequences, or none: it returns false after `drain`.
  bool submit(const std::vector<SequencePointer>& sequences);
  // Releases a sequence of a disconnected client within one step; does nothing if it has ended.
  void cancel(uint64_t ticket);
  // Returns the sequences that start now in an engine, in the order of the queue. Finishes canceled and expired ones.
  std::vector<SequencePointer> admit(int32_t engine, int64_t free_rows, int64_t running_rows);
  // Finishes a running sequence and adds its record; does nothing if it has ended.
  void finish(Sequence& sequence, Failure failure, Records& records);
  // Finishes the running sequences of an engine that hangs, and perhaps calls `finish` for them later.
  void abandon(int32_t engine, Failure failure);
  // Blocks an idle engine until a sequence may start; returns false after `drain` if none is left.
  bool wait();
  // Refuses new sequences from now on; accepted ones continue.
  void drain();
  // Finishes every waiting sequence; running ones continue.
  void fail_all(Failure failure);

  Load load();
  // When the longest waiting sequence was queued; infinity: none waits. It reads the whole queue.
  double oldest_seconds();
  // How many rows start before the first sequence of a new fairness key.
  int64_t rows_before(double deadline_seconds, int32_t priority);
  // Returns the waiting sequences in order.
  std::vector<SequencePointer> line();

 private:
  std::vector<SequencePointer> take(int64_t free_rows, int64_t running_rows);
  bool has_room(const Sequence& sequence) const;
  bool leave(Sequence& sequence);
  void forget(Sequence& sequence);
  void publish_change();

  const SchedulerConfig config_;
  const Clock clock_;
  const std::shared_ptr<Completions> completions_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  FairQueue waiting_;
  std::unordered_map<uint64_t, SequencePointer> sequences_;  // by ticket: what waits or runs
  int64_t running_ = 0;
  int64_t most_running_ = 0;
  int64_t running_rows_ = 0;
  int64_t running_tokens_ = 0;
  bool draining_ = false;
  bool stalled_ = false;  // an idle engine got nothing, and nothing has changed since
};

}  // namespace dragoman
