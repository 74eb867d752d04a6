// Work that is split over threads. Results never depend on the split.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/kernels.hpp"

namespace dragoman {

class Parallel {
 public:
  using Task = void (*)(void* user, std::size_t index);
  // Calls task(user, i) for i = 0, ..., count - 1 and waits.
  using Run = void (*)(void* context, Task task, std::size_t count, void* user);

  Parallel() = default;
  Parallel(Index threads, Run run, void* context) : threads_(threads), run_(run), context_(context) {}

  Index threads() const { return threads_; }

  // Calls f(task, first, last) for ranges of 0, ..., count - 1, each of at least `least`, except the last one.
  // Tasks are numbered from 0 and fewer than `threads()`. `f` must not throw.
  template <class F>
  void split(Index count, Index least, F&& f) const {
    if (count == 0) return;
    const Index most = std::min(threads_, (count + least - 1) / least);
    if (most <= 1) {
      f(Index{0}, Index{0}, count);
      return;
    }
    struct Call {
      F* function;
      Index count, part;
    } call{&f, count, std::max(least, round_up((count + most - 1) / most, least))};
    const auto task = [](void* user, std::size_t index) {
      const Call& c = *static_cast<Call*>(user);
      const Index i = static_cast<Index>(index);
      (*c.function)(i, i * c.part, std::min(c.count, (i + 1) * c.part));
    };
    run_(context_, task, static_cast<std::size_t>((count + call.part - 1) / call.part), &call);
  }

 private:
  Index threads_ = 1;
  Run run_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace dragoman
