// Where tensors of a model lie and its work runs in order: a GPU with a stream, or for tests the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace dragoman::cuda {

// The device has too little memory.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int32_t kMarks = 2;

// Lines of memory in groups, `to` and `from` at a distance each.
struct Lines {
  struct Layout {
    size_t pitch;   // bytes from one line to the next
    size_t height;  // lines from one group to the next
  };

  char* to;
  const char* from;
  Layout to_layout, from_layout;
  size_t bytes, lines, groups;  // of a line, of a group, in all
};

// Copies run in the order of their calls, after all runs of sessions before them; `synchronize` waits for them.
// Every method throws std::runtime_error if the device fails, also in work of earlier calls.
class Device {
 public:
  virtual ~Device() = default;

  // Makes it the device of the calling thread, which must be called before anything else of that thread.
  virtual void activate() = 0;
  // Returns memory of the device with zeros: garbage could hold NaN, and NaN times zero is NaN.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Returns memory of the host that the device can copy from and to without help.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;

  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // Copies between lines that do not overlap.
  virtual void copy_lines(const Lines& lines) = 0;
  virtual void fill(void* to, uint8_t byte, size_t bytes) = 0;
  virtual void synchronize() = 0;
  // Puts one of `kMarks` marks behind all work so far. `wait` waits for the work before a mark, if it was ever put.
  virtual void mark(int32_t number) = 0;
  virtual void wait(int32_t number) = 0;

  // The stream for sessions; null: none.
  virtual void* stream() const = 0;
};

// Memory of a device or, if pinned, of the host.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<Device> device, size_t bytes, bool pinned = false)
      : device_(std::move(device)),
        pinned_(pinned),
        bytes_(bytes),
        data_(static_cast<char*>(pinned ? device_->allocate_pinned(bytes) : device_->allocate(bytes))) {}
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ == nullptr) return;
    pinned_ ? device_->release_pinned(data_) : device_->release(data_);
  }

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pinned_, other.pinned_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  std::shared_ptr<Device> device_;
  bool pinned_ = false;
  size_t bytes_ = 0;
  char* data_ = nullptr;
};

// Memory of the host in place of that of a device.
std::shared_ptr<Device> open_host();

// A GPU by its number among the visible ones, through the driver of this name. Throws std::runtime_error if the driver
// cannot be loaded, lacks a function, or has no such GPU.
std::shared_ptr<Device> open_gpu(const std::string& driver, int number);

}  // namespace dragoman::cuda
