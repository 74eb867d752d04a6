// Memory that grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "kernels/kernels.hpp"

namespace dragoman {

// New memory is zero; old contents are lost.
//
// A buffer grows by large steps, and the system commits only pages that were written: many small steps would leave holes.
template <class T>
class Buffer {
 public:
  T* fit(Index count) {
    if (count > count_) {
      const Index bytes = round_up(count * static_cast<Index>(sizeof(T)), kStep);
      memory_.reset();
      count_ = 0;
      memory_.reset(std::calloc(1, static_cast<std::size_t>(bytes + kAlignment)));
      if (memory_ == nullptr) throw std::bad_alloc();
      count_ = bytes / static_cast<Index>(sizeof(T));
    }
    return data();
  }
  T* data() const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    return reinterpret_cast<T*>((address + kAlignment - 1) / kAlignment * kAlignment);
  }

 private:
  static constexpr Index kAlignment = 64;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr Index kStep = kAlignment;  // so that the sanitizer sees what is behind the end
#else
  static constexpr Index kStep = Index{1} << 20;
#endif
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  Index count_ = 0;
};

}  // namespace dragoman
