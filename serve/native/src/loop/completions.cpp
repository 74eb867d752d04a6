#include "loop/completions.hpp"

#include <unistd.h>

#include <cstdint>
#include <utility>

namespace dragoman {

void Completions::publish(const Records& records, bool urgent) {
  if (records.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_.add(records);
  if (woken_ || descriptor_ < 0 || (pause_ && !urgent)) return;
  const uint64_t one = 1;
  // A full pipe is as good as a write: it wakes Python.
  woken_ = write(descriptor_, &one, sizeof one) == sizeof one;
}

const Records& Completions::take(bool pause) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(waiting_, taken_);
  waiting_.clear();
  woken_ = false;
  pause_ = pause;
  return taken_;
}

void Completions::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  descriptor_ = -1;
}

}  // namespace dragoman
