// What an engine did, counted by its thread and read by any other.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "loop/config.hpp"

namespace dragoman {

inline uint64_t nanoseconds(double seconds) { return static_cast<uint64_t>(std::max(0.0, seconds) * 1e9); }

// The runs of the model of one kind: nanoseconds, sequences, runs by duration, and runs by their sequences.
class PhaseCounters {
 public:
  explicit PhaseCounters(const LoopConfig& config)
      : seconds_bounds_(config.seconds_bounds),
        sequence_bounds_(config.sequence_bounds),
        counts_(4 + seconds_bounds_.count + sequence_bounds_.count) {}

  void observe(double seconds, size_t sequences) {
    add(0, nanoseconds(seconds));
    add(1, sequences);
    add(2 + seconds_bounds_.bucket(seconds), 1);
    add(3 + seconds_bounds_.count + sequence_bounds_.bucket(static_cast<double>(sequences)), 1);
  }

  uint64_t total_nanoseconds() const { return counts_[0].load(std::memory_order_relaxed); }

  void append_to(std::vector<uint64_t>& values) const {
    for (const auto& count : counts_) values.push_back(count.load(std::memory_order_relaxed));
  }

 private:
  void add(size_t index, uint64_t count) { counts_[index].fetch_add(count, std::memory_order_relaxed); }

  const Bounds seconds_bounds_, sequence_bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
};

}  // namespace dragoman
