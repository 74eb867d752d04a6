// Scratch memory of one call, and a pool of it for calls that run at the same time.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
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

// A token of an encoded source.
struct SourceToken {
  Index source;
  Index position;
};

struct Workspace {
  Buffer<float> states, normalized, wide, gate, attended;
  Buffer<std::uint8_t> quantized;
  Buffer<float> scales, attention, weights, cache;
  Buffer<float> strips, largest, sums;
  Buffer<Candidate> best;
  std::vector<Choice> choices;
  std::vector<SourceToken> tokens;
  std::vector<Index> first_rows;  // of each source
  std::vector<FloatCache> source_caches;
};

class WorkspacePool {
 public:
  struct GiveBack {
    WorkspacePool* pool;
    void operator()(Workspace* workspace) const {
      const std::lock_guard<std::mutex> lock(pool->mutex_);
      pool->idle_.emplace_back(workspace);
    }
  };
  using Lease = std::unique_ptr<Workspace, GiveBack>;

  Lease take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return {std::make_unique<Workspace>().release(), {this}};
    std::unique_ptr<Workspace> workspace = std::move(idle_.back());
    idle_.pop_back();
    return {workspace.release(), {this}};
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace dragoman
