// A lock with many concurrent users or one capture.
//
// ONNX Runtime captures CUDA graphs in CUDA's global mode: any thread of the process that allocates or copies spoils
// the capture. Therefore a capture excludes all other use of CUDA for some milliseconds.
#pragma once

#include <condition_variable>
#include <mutex>

namespace dragoman::cuda {

class CaptureGate {
 public:
  // The gate of the process.
  static CaptureGate& process() {
    static CaptureGate gate;
    return gate;
  }

  // Holds the gate as a user, or alone to capture.
  class Hold {
   public:
    Hold(CaptureGate& gate, bool captures) : gate_(gate), captures_(captures) { gate_.enter(captures_); }
    ~Hold() { gate_.leave(captures_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    CaptureGate& gate_;
    const bool captures_;
  };

 private:
  void enter(bool captures) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (captures) {
      ++captures_;  // from now on new users wait, so that a capture cannot starve
      changed_.wait(lock, [this] { return users_ == 0; });
    } else {
      changed_.wait(lock, [this] { return captures_ == 0; });
    }
    ++users_;
  }

  void leave(bool captures) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --users_;
    if (captures) --captures_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int users_ = 0;
  int captures_ = 0;  // waiting or running
};

}  // namespace dragoman::cuda
