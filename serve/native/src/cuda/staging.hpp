// Small inputs of runs: one block of pinned host memory, and one of device memory to which each input is copied.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "cuda/device.hpp"

namespace dragoman::cuda {

class Staging {
 public:
  Staging(std::shared_ptr<Device> device, size_t bytes)
      : device_(std::move(device)), host_(device_, bytes, true), memory_(device_, bytes) {}

  // Copies values to the device. Returns where they are until the next call that finds no room waits for the device, so
  // one call must have all inputs of a run.
  template <class... Vectors>
  std::array<const void*, sizeof...(Vectors)> put(const Vectors&... vectors) {
    const size_t room = (rounded(bytes_of(vectors)) + ...);
    if (room > host_.bytes()) throw std::length_error("staging: too many values");
    if (used_ + room > host_.bytes()) {
      device_->synchronize();
      used_ = 0;
    }
    return {put_one(vectors)...};
  }

  static size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  static constexpr size_t kAlignment = 256;

  template <class T>
  static size_t bytes_of(const std::vector<T>& values) {
    return values.size() * sizeof(T);
  }

  template <class T>
  const void* put_one(const std::vector<T>& values) {
    char *from = host_.data() + used_, *to = memory_.data() + used_;
    std::memcpy(from, values.data(), bytes_of(values));
    device_->upload(to, from, bytes_of(values));
    used_ += rounded(bytes_of(values));
    return to;
  }

  const std::shared_ptr<Device> device_;
  DeviceMemory host_, memory_;
  size_t used_ = 0;
};

}  // namespace dragoman::cuda
