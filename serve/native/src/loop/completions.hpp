// Results on their way to Python: the engines never wait for it, and one write wakes it for all of them.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "loop/records.hpp"

namespace dragoman {

class Completions {
 public:
  // Wakes Python by writing to a descriptor that does not block: of an eventfd or a pipe.
  explicit Completions(int descriptor) : descriptor_(descriptor) {}

  // Hands over records, and wakes Python if they need it.
  void publish(const Records& records) {
    if (records.empty()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.add(records);
    const Wake wake = records.count_ends();
    if (woken_ || descriptor_ < 0 || wake == Wake::kNever || (pause_ && wake == Wake::kUnlessPaused)) return;
    const uint64_t one = 1;
    // A full pipe is as good as a write: it wakes Python.
    woken_ = write(descriptor_, &one, sizeof one) == sizeof one;
  }

  // Returns the records since the last call, valid until the next call. With a pause, tokens do not wake Python,
  // except for first ones, until a call without.
  const Records& take(bool pause) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(waiting_, taken_);
    waiting_.clear();
    woken_ = false;
    pause_ = pause;
    return taken_;
  }

  // Ends the wake-ups: afterwards the descriptor may be closed.
  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    descriptor_ = -1;
  }

 private:
  std::mutex mutex_;
  int descriptor_;
  Records waiting_;
  Records taken_;
  bool woken_ = false;
  bool pause_ = false;
};

}  // namespace dragoman
