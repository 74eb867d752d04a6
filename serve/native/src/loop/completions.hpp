// Results on their way to Python: the engines never wait for it, and one write wakes it for all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "loop/records.hpp"

namespace dragoman {

class Completions {
 public:
  // Wakes Python by writing to a descriptor that does not block: of an eventfd or a pipe.
  explicit Completions(int descriptor) : descriptor_(descriptor) {}

  // Hands over records. Urgent ones wake Python at once; others do unless Python takes a pause.
  void publish(const Records& records, bool urgent);

  // Returns the records since the last call, valid until the next call. With `pause`, only urgent records wake Python
  // from now on, until a call without.
  const Records& take(bool pause);

  // Ends the wake-ups: afterwards the descriptor may be closed.
  void close();

 private:
  std::mutex mutex_;
  int descriptor_;
  Records waiting_;
  Records taken_;
  bool woken_ = false;
  bool pause_ = false;
};

}  // namespace dragoman
