#include "loop/fair_queue.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace dragoman {
namespace {

using Order = std::tuple<int64_t, int64_t, double, uint64_t>;

Order order_of(int32_t priority, int64_t round, double deadline_seconds, uint64_t number) {
  return {-int64_t{priority}, round, deadline_seconds, number};
}

Order order_of(const Sequence& each) {
  return order_of(each.priority, each.turn.round, each.deadline_seconds, each.turn.number);
}

}  // namespace

int64_t FairRounds::enter(uint64_t key, int64_t rows) {
  Key& state = keys_.try_emplace(key, Key{current, 0}).first->second;
  const int64_t round = std::max(current, state.next_round);
  state.next_round = round + rows;
  ++state.waiting;
  return round;
}

void FairRounds::leave(uint64_t key) {
  const auto found = keys_.find(key);
  if (--found->second.waiting == 0) keys_.erase(found);
}

bool FairQueue::Earlier::operator()(const SequencePointer& left, const SequencePointer& right) const {
  return order_of(*left) < order_of(*right);
}

size_t FairQueue::size() const {
  size_t count = 0;
  for (const auto& [rows, line] : lines_) count += line.size();
  return count;
}

int64_t FairQueue::rows() const {
  int64_t sum = 0;
  for (const auto& [rows, line] : lines_) sum += rows * static_cast<int64_t>(line.size());
  return sum;
}

double FairQueue::oldest_seconds() const {
  double oldest = kNever;
  for (const auto& [rows, line] : lines_) {
    for (const SequencePointer& each : line) oldest = std::min(oldest, each->submitted_seconds);
  }
  return oldest;
}

int64_t FairQueue::rows_before(double deadline_seconds, int32_t priority) const {
  const auto found = rounds_.find(priority);
  const int64_t round = found == rounds_.end() ? 0 : found->second.current;
  const Order order = order_of(priority, round, deadline_seconds, next_number_);
  int64_t sum = 0;
  for (const auto& [rows, line] : lines_) {
    for (auto each = line.begin(); each != line.end() && order_of(**each) < order; ++each) sum += rows;
  }
  return sum;
}

void FairQueue::push(SequencePointer sequence) {
  const int64_t rows = sequence->options.rows();
  const int64_t round = rounds_[sequence->priority].enter(sequence->fairness_key, rows);
  sequence->turn = {round, next_number_++, 0};
  next_departure_seconds_ = std::min(next_departure_seconds_, sequence->latest_start_seconds());
  some_cancelled_ = some_cancelled_ || sequence->cancelled;
  lines_[rows].insert(std::move(sequence));
}

SequencePointer FairQueue::pop(int64_t free_rows, const std::function<bool(const Sequence&)>& may_start) {
  const SequencePointer* head = first(std::numeric_limits<int64_t>::max());
  const SequencePointer* fitting = first(free_rows);
  if (head == nullptr || fitting == nullptr) return nullptr;
  const SequencePointer sequence = *fitting;
  const int64_t rows = sequence->options.rows();
  const int64_t passed_rows = fitting == head ? 0 : (*head)->turn.passed_rows + rows;
  if (passed_rows > pass_limit_rows_ || !may_start(*sequence)) return nullptr;
  if (fitting != head) (*head)->turn.passed_rows = passed_rows;
  lines_[rows].erase(sequence);
  rounds_[sequence->priority].start(sequence->turn.round);
  leave_round(*sequence);
  return sequence;
}

std::vector<std::pair<SequencePointer, Failure>> FairQueue::pop_abandoned(double now_seconds) {
  std::vector<std::pair<SequencePointer, Failure>> abandoned;
  if (!some_cancelled_ && now_seconds < next_departure_seconds_) return abandoned;
  some_cancelled_ = false;
  next_departure_seconds_ = kNever;
  for (auto& [rows, line] : lines_) {
    for (auto each = line.begin(); each != line.end();) {
      Failure failure = (*each)->abandonment(now_seconds);
      if (failure == Failure::kNone && (*each)->start_by_seconds <= now_seconds) failure = Failure::kQueueTimeout;
      if (failure == Failure::kNone) {
        next_departure_seconds_ = std::min(next_departure_seconds_, (*each)->latest_start_seconds());
        ++each;
      } else {
        leave_round(**each);
        abandoned.emplace_back(*each, failure);
        each = line.erase(each);
      }
    }
  }
  return abandoned;
}

std::vector<SequencePointer> FairQueue::clear() {
  std::vector<SequencePointer> sequences = line();
  lines_.clear();
  rounds_.clear();
  return sequences;
}

std::vector<SequencePointer> FairQueue::line() const {
  std::vector<SequencePointer> sequences;
  for (const auto& [rows, line] : lines_) sequences.insert(sequences.end(), line.begin(), line.end());
  std::sort(sequences.begin(), sequences.end(), Earlier());
  return sequences;
}

// Returns the first sequence of at most so many rows, or null.
const SequencePointer* FairQueue::first(int64_t widest) const {
  const SequencePointer* found = nullptr;
  for (auto line = lines_.begin(); line != lines_.end() && line->first <= widest; ++line) {
    if (line->second.empty()) continue;
    const SequencePointer& candidate = *line->second.begin();
    if (found == nullptr || Earlier()(candidate, *found)) found = &candidate;
  }
  return found;
}

void FairQueue::leave_round(const Sequence& sequence) {
  const auto found = rounds_.find(sequence.priority);
  found->second.leave(sequence.fairness_key);
  if (found->second.empty()) rounds_.erase(found);
}

}  // namespace dragoman
