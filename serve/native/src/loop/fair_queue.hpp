// The order in which waiting sequences start; serve/scheduler/queue.py explains the rules.
//
// Higher priority comes first, then the lower round of fair queuing, the earlier deadline, the earlier submission.
// Narrow sequences may pass a wide one that does not fit, but only a bounded number of rows. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loop/sequence.hpp"

namespace dragoman {

class FairQueue {
 public:
  explicit FairQueue(int64_t pass_limit_rows) : pass_limit_rows_(pass_limit_rows) {}

  size_t size() const {
    size_t count = 0;
    for (const auto& [rows, line] : lines_) count += line.size();
    return count;
  }

  int64_t rows() const {
    int64_t sum = 0;
    for (const auto& [rows, line] : lines_) sum += rows * static_cast<int64_t>(line.size());
    return sum;
  }

  // When the longest waiting sequence was queued; `kNever`: nothing waits.
  double oldest_seconds() const {
    double oldest = kNever;
    for (const auto& [rows, line] : lines_) {
      for (const auto& [order, each] : line) oldest = std::min(oldest, each->submitted_seconds);
    }
    return oldest;
  }

  // How many rows start before the first sequence of a new key that arrives now.
  int64_t rows_before(double deadline_seconds, int32_t priority) const {
    const auto found = rounds_.find(priority);
    const int64_t round = found == rounds_.end() ? 0 : found->second.current;
    const Order order = order_of(priority, round, deadline_seconds, next_number_);
    int64_t sum = 0;
    for (const auto& [rows, line] : lines_) sum += rows * std::distance(line.begin(), line.lower_bound(order));
    return sum;
  }

  void push(const SequencePointer& sequence) {
    sequence->queued = {enter_round(*sequence), next_number_++, 0};
    next_departure_seconds_ = std::min(next_departure_seconds_, sequence->latest_start_seconds());
    some_cancelled_ = some_cancelled_ || sequence->cancelled;
    lines_[sequence->options.rows()].emplace(order_of(*sequence), sequence);
  }

  // Removes and returns the sequence that starts next in this number of free rows, if any. `may_start` returns false if the
  // sequence must wait for another resource; then no sequence starts instead.
  SequencePointer pop(int64_t free_rows, const std::function<bool(const Sequence&)>& may_start) {
    const SequencePointer* head = first(std::numeric_limits<int64_t>::max());
    const SequencePointer* fitting = first(free_rows);
    if (head == nullptr || fitting == nullptr) return nullptr;
    const SequencePointer sequence = *fitting;
    const int64_t rows = sequence->options.rows();
    const int64_t passed_rows = fitting == head ? 0 : (*head)->queued.passed_rows + rows;
    if (passed_rows > pass_limit_rows_ || !may_start(*sequence)) return nullptr;
    if (fitting != head) (*head)->queued.passed_rows = passed_rows;
    lines_[rows].erase(order_of(*sequence));
    int64_t& current = rounds_[sequence->priority].current;
    current = std::max(current, sequence->queued.round + 1);
    leave_round(*sequence);
    return sequence;
  }

  // Notes that a sequence was canceled before this call.
  void notice_cancelled() { some_cancelled_ = true; }

  // Removes and returns all canceled and expired sequences, each with its reason.
  std::vector<std::pair<SequencePointer, Failure>> pop_abandoned(double now_seconds) {
    std::vector<std::pair<SequencePointer, Failure>> abandoned;
    if (!some_cancelled_ && now_seconds < next_departure_seconds_) return abandoned;
    some_cancelled_ = false;
    next_departure_seconds_ = kNever;
    for (auto& [rows, line] : lines_) {
      for (auto each = line.begin(); each != line.end();) {
        const SequencePointer& sequence = each->second;
        Failure failure = sequence->abandonment(now_seconds);
        if (failure == Failure::kNone && sequence->start_by_seconds <= now_seconds) failure = Failure::kQueueTimeout;
        if (failure == Failure::kNone) {
          next_departure_seconds_ = std::min(next_departure_seconds_, sequence->latest_start_seconds());
          ++each;
        } else {
          leave_round(*sequence);
          abandoned.emplace_back(sequence, failure);
          each = line.erase(each);
        }
      }
    }
    return abandoned;
  }

  // Removes and returns all sequences.
  std::vector<SequencePointer> clear() {
    std::vector<SequencePointer> sequences = line();
    lines_.clear();
    rounds_.clear();
    return sequences;
  }

  // Returns the sequences in order.
  std::vector<SequencePointer> line() const {
    Line all;
    for (const auto& [rows, line] : lines_) all.insert(line.begin(), line.end());
    std::vector<SequencePointer> sequences;
    for (const auto& [order, each] : all) sequences.push_back(each);
    return sequences;
  }

 private:
  // Negative priority, round, deadline, number of the submission: the smallest is first.
  using Order = std::tuple<int64_t, int64_t, double, uint64_t>;
  using Line = std::map<Order, SequencePointer>;

  static Order order_of(int32_t priority, int64_t round, double deadline_seconds, uint64_t number) {
    return {-int64_t{priority}, round, deadline_seconds, number};
  }

  static Order order_of(const Sequence& each) {
    return order_of(each.priority, each.queued.round, each.deadline_seconds, each.queued.number);
  }

  // Returns the first sequence of at most this number of rows, or null.
  const SequencePointer* first(int64_t widest) const {
    const Line::value_type* found = nullptr;
    for (auto line = lines_.begin(); line != lines_.end() && line->first <= widest; ++line) {
      if (line->second.empty()) continue;
      const Line::value_type& candidate = *line->second.begin();
      if (found == nullptr || candidate.first < found->first) found = &candidate;
    }
    return found == nullptr ? nullptr : &found->second;
  }

  // The rounds of the fairness keys that have waiting sequences of one priority: start-time fair queuing (Goyal, Vin
  // and Cheng 1996), except that the current round is one past the latest start.
  struct Key {
    int64_t next_round = 0;
    int64_t waiting = 0;
  };
  struct Rounds {
    int64_t current = 0;
    std::unordered_map<uint64_t, Key> keys;
  };

  // Adds a sequence to its key and returns its round.
  int64_t enter_round(const Sequence& sequence) {
    Rounds& rounds = rounds_[sequence.priority];
    Key& key = rounds.keys[sequence.fairness_key];
    const int64_t round = std::max(rounds.current, key.next_round);
    key = {round + sequence.options.rows(), key.waiting + 1};
    return round;
  }

  void leave_round(const Sequence& sequence) {
    auto& keys = rounds_.at(sequence.priority).keys;
    if (--keys.at(sequence.fairness_key).waiting == 0) keys.erase(sequence.fairness_key);
    if (keys.empty()) rounds_.erase(sequence.priority);
  }

  int64_t pass_limit_rows_;
  std::map<int64_t, Line> lines_;  // by rows: finds the first fitting sequence at once
  std::map<int32_t, Rounds> rounds_;  // by priority: their rounds are not comparable
  uint64_t next_number_ = 0;
  // Before this time no sequence expires, and without a notice none was canceled: no search is needed.
  double next_departure_seconds_ = kNever;
  bool some_cancelled_ = false;
};

}  // namespace dragoman
