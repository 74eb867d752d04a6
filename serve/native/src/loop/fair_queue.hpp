// The order in which waiting sequences start; serve/scheduler/queue.py explains the rules.
//
// Higher priority comes first, then the lower round of fair queuing, the earlier deadline, the earlier submission.
// Narrow sequences may pass a wide one that does not fit, but only a bounded number of rows. Not thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loop/sequence.hpp"

namespace dragoman {

// The rounds of the fairness keys that have waiting sequences of one priority: start-time fair queuing (Goyal, Vin and
// Cheng 1996), except that the current round is one past the latest start.
class FairRounds {
 public:
  int64_t current = 0;

  bool empty() const { return keys_.empty(); }
  // Adds a sequence of so many rows to the key and returns its round.
  int64_t enter(uint64_t key, int64_t rows);
  void start(int64_t started_round) { current = std::max(current, started_round + 1); }
  void leave(uint64_t key);

 private:
  struct Key {
    int64_t next_round = 0;
    int64_t waiting = 0;
  };
  std::unordered_map<uint64_t, Key> keys_;
};

class FairQueue {
 public:
  explicit FairQueue(int64_t pass_limit_rows) : pass_limit_rows_(pass_limit_rows) {}

  size_t size() const;
  int64_t rows() const;
  // When the longest waiting sequence was queued; `kNever`: nothing waits.
  double oldest_seconds() const;
  // How many rows start before the first sequence of a new key that arrives now.
  int64_t rows_before(double deadline_seconds, int32_t priority) const;
  void push(SequencePointer sequence);
  // Removes and returns the sequence that starts next in so many free rows, if any. `may_start` returns false if the
  // sequence must wait for another resource; then no sequence starts instead.
  SequencePointer pop(int64_t free_rows, const std::function<bool(const Sequence&)>& may_start);
  // Notes that a sequence was canceled before this call.
  void notice_cancelled() { some_cancelled_ = true; }
  // Removes and returns all canceled and expired sequences, each with its reason.
  std::vector<std::pair<SequencePointer, Failure>> pop_abandoned(double now_seconds);
  // Removes and returns all sequences.
  std::vector<SequencePointer> clear();
  // Returns the sequences in order.
  std::vector<SequencePointer> line() const;

 private:
  struct Earlier {
    bool operator()(const SequencePointer& left, const SequencePointer& right) const;
  };
  using Line = std::set<SequencePointer, Earlier>;

  const SequencePointer* first(int64_t widest) const;
  void leave_round(const Sequence& sequence);

  int64_t pass_limit_rows_;
  std::map<int64_t, Line> lines_;  // by rows: finds the first fitting sequence at once
  std::map<int32_t, FairRounds> rounds_;  // by priority: their rounds are not comparable
  uint64_t next_number_ = 0;
  // Before this time no sequence expires, and without a notice none was canceled: no search is needed.
  double next_departure_seconds_ = kNever;
  bool some_cancelled_ = false;
};

}  // namespace dragoman
