#include "loop/scheduler.hpp"

#include <algorithm>
#include <stdexcept>

namespace dragoman {

bool Scheduler::submit(const std::vector<SequencePointer>& sequences) {
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

void Scheduler::cancel(uint64_t ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sequences_.find(ticket);
  if (found == sequences_.end()) return;
  found->second->cancelled = true;
  waiting_.notice_cancelled();
}

std::vector<SequencePointer> Scheduler::admit(int32_t engine, int64_t free_rows, int64_t running_rows) {
  Records ended;
  std::vector<SequencePointer> admitted;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.size() == 0) return {};
    const double now_seconds = clock_();
    const auto abandoned = waiting_.pop_abandoned(now_seconds);
    for (const auto& [sequence, failure] : abandoned) {
      ended.add_end(*sequence, failure, now_seconds);
      forget(*sequence);
    }
    admitted = take(free_rows, running_rows);
    for (const SequencePointer& sequence : admitted) {
      sequence->state = State::kRunning;
      sequence->engine = engine;
      sequence->started_seconds = now_seconds;
    }
    if (!abandoned.empty() || !admitted.empty()) publish_change();
    if (admitted.empty() && running_rows == 0) stalled_ = true;
  }
  completions_->publish(ended, true);
  return admitted;
}

void Scheduler::finish(Sequence& sequence, Failure failure, Records& records) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!leave(sequence)) return;
  }
  records.add_end(sequence, failure, clock_());
}

void Scheduler::abandon(int32_t engine, Failure failure) {
  Records ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const double now_seconds = clock_();
    std::vector<SequencePointer> held;
    for (const auto& [ticket, sequence] : sequences_) {
      if (sequence->state == State::kRunning && sequence->engine == engine) held.push_back(sequence);
    }
    for (const SequencePointer& sequence : held) {
      leave(*sequence);
      ended.add_abandoned(*sequence, failure, now_seconds);
    }
  }
  completions_->publish(ended, true);
}

bool Scheduler::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() > 0 ? !stalled_ : draining_; });
  return waiting_.size() > 0;
}

void Scheduler::drain() {
  const std::lock_guard<std::mutex> lock(mutex_);
  draining_ = true;
  publish_change();
}

void Scheduler::fail_all(Failure failure) {
  Records ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const double now_seconds = clock_();
    for (const SequencePointer& sequence : waiting_.clear()) {
      ended.add_end(*sequence, failure, now_seconds);
      forget(*sequence);
    }
    publish_change();
  }
  completions_->publish(ended, true);
}

Load Scheduler::load() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {static_cast<int64_t>(waiting_.size()), waiting_.rows(), running_, running_rows_, most_running_};
}

double Scheduler::oldest_seconds() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_.oldest_seconds();
}

int64_t Scheduler::rows_before(double deadline_seconds, int32_t priority) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_.rows_before(deadline_seconds, priority);
}

std::vector<SequencePointer> Scheduler::line() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_.line();
}

std::vector<SequencePointer> Scheduler::take(int64_t free_rows, int64_t running_rows) {
  // An engine with its share of all rows leaves the rest to the others. While a sequence waits, some engine has less
  // than its share, thus more free rows than any engine with its share: what fits anywhere fits there, and that engine
  // calls within one step. So no row idles longer, and at most one sequence exceeds the share.
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
    running_tokens_ += sequence->most_tokens();
    prefill_tokens += sequence->source_length();
    free_rows -= rows;
    running_rows += rows;
    taken.push_back(std::move(sequence));
  }
  return taken;
}

bool Scheduler::has_room(const Sequence& sequence) const {
  if (config_.running_token_budget == kUnbounded || running_ == 0) return true;
  return running_tokens_ + sequence.most_tokens() <= config_.running_token_budget;
}

// Counts the end of a running sequence; returns false if it had ended before.
bool Scheduler::leave(Sequence& sequence) {
  if (sequence.state == State::kFinished) return false;
  const int64_t rows = sequence.options.rows();
  --running_;
  running_rows_ -= rows;
  running_tokens_ -= sequence.most_tokens();
  publish_change();
  forget(sequence);
  return true;
}

void Scheduler::forget(Sequence& sequence) {
  sequence.state = State::kFinished;
  sequences_.erase(sequence.ticket);
}

void Scheduler::publish_change() {
  // Any change may let an engine start a sequence that the token budget held back.
  stalled_ = false;
  changed_.notify_all();
}

}  // namespace dragoman
