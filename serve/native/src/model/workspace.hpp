// Scratch memory of one call.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernels/kernels.hpp"

namespace dragoman {

// Memory that grows and is never smaller than a cache line. New memory is zero; old contents are lost.
template <class T>
class Buffer {
 public:
  T* fit(Index count) {
    if (count > count_) {
      const auto bytes = static_cast<std::size_t>(round_up(count * static_cast<Index>(sizeof(T)), kAlignment));
      memory_.reset();
      count_ = 0;
      memory_.reset(::operator new(bytes, std::align_val_t{kAlignment}));
      std::memset(memory_.get(), 0, bytes);
      count_ = count;
    }
    return data();
  }
  T* data() const { return static_cast<T*>(memory_.get()); }

 private:
  static constexpr Index kAlignment = 64;
  struct Free {
    void operator()(void* memory) const { ::operator delete(memory, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<void, Free> memory_;
  Index count_ = 0;
};

struct Workspace {
  Buffer<float> states, normalized, wide, gate, attended;
  Buffer<std::uint8_t> quantized;
  Buffer<float> scales, attention, weights, cache;
  Buffer<float> strips, largest, sums;
  Buffer<Candidate> best;
  std::vector<Choice> choices;
  std::vector<Index> first_rows;   // of each encoded source
  std::vector<Index> row_sources;  // of each row, the source
  std::vector<FloatCache> source_caches;
};

// The workspace of this thread, so that its memory stays in the caches of one core.
inline Workspace& own_workspace() {
  thread_local Workspace workspace;
  return workspace;
}

}  // namespace dragoman
