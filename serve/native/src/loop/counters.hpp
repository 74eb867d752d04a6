// What an engine did, counted by its thread and read by any other.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dragoman {

// Counts of values up to each bound, and of those above all.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(new std::atomic<uint64_t>[bounds_.size() + 1]()) {}

  size_t size() const { return bounds_.size() + 1; }
  uint64_t count(size_t place) const { return counts_[place].load(std::memory_order_relaxed); }

  void observe(double value) {
    const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[static_cast<size_t>(place)].fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;
};

// The runs of the model of one kind.
struct PhaseCounters {
  std::atomic<uint64_t> nanoseconds{0};
  std::atomic<uint64_t> sequences{0};
  Histogram seconds;
  Histogram widths;  // sequences of a run

  PhaseCounters(const std::vector<double>& seconds_bounds, const std::vector<double>& sequence_bounds)
      : seconds(seconds_bounds), widths(sequence_bounds) {}

  void observe(double duration_seconds, size_t width) {
    nanoseconds.fetch_add(static_cast<uint64_t>(std::max(0.0, duration_seconds) * 1e9), std::memory_order_relaxed);
    sequences.fetch_add(width, std::memory_order_relaxed);
    seconds.observe(duration_seconds);
    widths.observe(static_cast<double>(width));
  }
};

}  // namespace dragoman
