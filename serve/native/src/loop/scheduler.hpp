// Decides which sequences start, and when: a queue in front of the rows of one or more engines.
//
// Python submits sequences; each engine takes them into its free rows and reports finished ones. Every accepted
// sequence is finished exactly once. Thread-safe.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loop/completions.hpp"
#include "loop/config.hpp"
#include "loop/fair_queue.hpp"
#include "loop/records.hpp"
#include "loop/sequence.hpp"

namespace dragoman {

// Returns the time in seconds, on the clock of the deadlines.
using Clock = std::function<double()>;

struct Load {
  int64_t waiting = 0;
  int64_t waiting_rows = 0;
  int64_t running = 0;
  int64_t running_rows = 0;
  int64_t most_running = 0;  // at once, since the start
};

class Scheduler {
 public:
  Scheduler(const LoopConfig& config, Clock clock, std::shared_ptr<Completions> completions)
      : config_(config),
        clock_(std::move(clock)),
        completions_(std::move(completions)),
        // As many rows may pass a wide sequence as an engine has: about one pass of its rows.
        waiting_(config.engine_rows) {}

  // Queues all sequences, or none: it returns false after `drain`.
  bool submit(const std::vector<SequencePointer>& sequences) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (draining_) return false;
    for (const SequencePointer& sequence : sequences) {
      if (sequences_.count(sequence->ticket) > 0) throw std::invalid_argument("ticket: in use");
    }
    for (const SequencePointer& sequence : sequences) {
      sequences_.emplace(sequence->ticket, sequence);
      waiting_.push(sequence);
    }
    stalled_ = false;
    if (sequences.size() > 1) changed_.notify_all();
    else changed_.notify_one();  // a second idle engine would wake in vain
    return true;
  }

  // Releases a sequence of a disconnected client within one step; does nothing if it has ended.
  void cancel(uint64_t ticket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sequences_.find(ticket);
    if (found == sequences_.end()) return;
    found->second->cancelled = true;
    waiting_.notice_cancelled();
  }

  // Returns the sequences that start now in an engine, in the order of the queue. Finishes canceled and expired ones.
  std::vector<SequencePointer> schedule(int32_t engine, int64_t free_rows, int64_t running_rows) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.size() == 0) return {};
    const double now_seconds = clock_();
    Records ended;
    for (const auto& [sequence, failure] : waiting_.pop_abandoned(now_seconds)) {
      ended.add_end(*sequence, failure, now_seconds);
      forget(*sequence);
    }
    completions_->publish(ended);
    const std::vector<SequencePointer> scheduled = take(free_rows, running_rows);
    for (const SequencePointer& sequence : scheduled) {
      sequence->state = State::kRunning;
      sequence->engine = engine;
      sequence->started_seconds = now_seconds;
    }
    if (!ended.empty() || !scheduled.empty()) publish_change();
    if (scheduled.empty() && running_rows == 0) stalled_ = true;
    return scheduled;
  }

  // Finishes a running sequence and adds its record; does nothing if it has ended.
  void finish(Sequence& sequence, Failure failure, Records& records) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!leave(sequence)) return;
    }
    records.add_end(sequence, failure, clock_());
  }

  // Finishes the running sequences of an engine that hangs, and perhaps calls `finish` for them later.
  void abandon(int32_t engine, Failure failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<SequencePointer> held;
    for (const auto& [ticket, sequence] : sequences_) {
      if (sequence->state == State::kRunning && sequence->engine == engine) held.push_back(sequence);
    }
    Records ended;
    for (const SequencePointer& sequence : held) {
      leave(*sequence);
      ended.add_abandoned(*sequence, failure, clock_());
    }
    completions_->publish(ended);
  }

  // Blocks an idle engine until a sequence may start; returns false after `drain` if none is left.
  bool wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.size() > 0 ? !stalled_ : draining_; });
    return waiting_.size() > 0;
  }

  // Refuses new sequences from now on; accepted ones continue.
  void drain() {
    const std::lock_guard<std::mutex> lock(mutex_);
    draining_ = true;
    publish_change();
  }

  // Finishes every waiting sequence; running ones continue.
  void fail_all(Failure failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Records ended;
    for (const SequencePointer& sequence : waiting_.clear()) {
      ended.add_end(*sequence, failure, clock_());
      forget(*sequence);
    }
    publish_change();
    completions_->publish(ended);
  }

  Load load() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {static_cast<int64_t>(waiting_.size()), waiting_.rows(), running_, running_rows_, most_running_};
  }

  // When the longest waiting sequence was queued; infinity: none waits. It reads the whole queue.
  double oldest_seconds() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.oldest_seconds();
  }

  // How many rows start before the first sequence of a new fairness key.
  int64_t rows_before(double deadline_seconds, int32_t priority) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.rows_before(deadline_seconds, priority);
  }

  // Returns the waiting sequences in order.
  std::vector<SequencePointer> line() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.line();
  }

 private:
  // An engine with its share of all rows leaves the rest to the others. While a sequence waits, some engine has less
  // than its share, thus more free rows than any engine with its share: what fits anywhere fits there, and that engine
  // calls within one step. So no row idles longer, and at most one sequence exceeds the share.
  std::vector<SequencePointer> take(int64_t free_rows, int64_t running_rows) {
    const int64_t all_rows = running_rows_ + waiting_.rows();
    std::vector<SequencePointer> taken;
    int64_t prefill_tokens = 0;
    const auto may_start = [&](const Sequence& sequence) {
      const bool within_prefill = prefill_tokens + sequence.source_length() <= config_.prefill_token_budget;
      return (within_prefill || taken.empty()) && has_room(sequence);
    };
    while (running_rows * config_.engines < all_rows) {
      SequencePointer sequence = waiting_.pop(free_rows, may_start);
      if (sequence == nullptr) break;
      const int64_t rows = sequence->options.rows();
      most_running_ = std::max(most_running_, ++running_);
      running_rows_ += rows;
      running_tokens_ += sequence->max_tokens();
      prefill_tokens += sequence->source_length();
      free_rows -= rows;
      running_rows += rows;
      taken.push_back(std::move(sequence));
    }
    return taken;
  }

  bool has_room(const Sequence& sequence) const {
    if (config_.running_token_budget == kUnbounded || running_ == 0) return true;
    return running_tokens_ + sequence.max_tokens() <= config_.running_token_budget;
  }

  // Counts the end of a running sequence; returns false if it had ended before.
  bool leave(Sequence& sequence) {
    if (sequence.state == State::kFinished) return false;
    const int64_t rows = sequence.options.rows();
    --running_;
    running_rows_ -= rows;
    running_tokens_ -= sequence.max_tokens();
    publish_change();
    forget(sequence);
    return true;
  }

  void forget(Sequence& sequence) {
    sequence.state = State::kFinished;
    sequences_.erase(sequence.ticket);
  }

  // Any change may let an engine start a sequence that the token budget held back. Without a waiting one, idle engines
  // sleep on: on the CPU of the busy one they would put it behind processes with a lower priority for a tick of the clock.
  void publish_change() {
    stalled_ = false;
    if (waiting_.size() > 0 || draining_) changed_.notify_all();
  }

  const LoopConfig config_;
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
