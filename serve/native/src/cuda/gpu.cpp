#if !defined(_WIN32)
#include <dlfcn.h>
#endif

#include <algorithm>
#include <array>

#include "cuda/capture_gate.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"

namespace dragoman::cuda {

#if defined(_WIN32)
Driver load_driver(const std::string& library) {
  throw std::runtime_error(library + ": a GPU needs Linux");
}
#else
Driver load_driver(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) throw std::runtime_error(std::string("the NVIDIA driver cannot be loaded: ") + dlerror());
  Driver driver;
#define DRAGOMAN_LOAD(name, symbol, parameters)                                         \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(handle, #symbol));        \
  if (driver.name == nullptr) throw std::runtime_error(library + ": it has no " #symbol);
  DRAGOMAN_DRIVER_FUNCTIONS(DRAGOMAN_LOAD)
#undef DRAGOMAN_LOAD
  return driver;
}
#endif

void Driver::check(Result result, const char* call) const {
  if (result == Result::kSuccess) return;
  const char* name = nullptr;
  if (get_error_name(result, &name) != Result::kSuccess || name == nullptr) name = "unknown error";
  const std::string message = std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")";
  if (result == Result::kOutOfMemory) throw OutOfMemory(message);
  throw std::runtime_error(message);
}

namespace {

#define DRAGOMAN_CHECKED(name, ...) driver_.check(driver_.name(__VA_ARGS__), #name)

class Gpu : public Device {
 public:
  Gpu(const std::string& driver, int number) : driver_(load_driver(driver)) {
    const CaptureGate::Hold hold(CaptureGate::process(), false);
    DRAGOMAN_CHECKED(init, 0);
    DRAGOMAN_CHECKED(get_device, &device_, number);
    // The context that ONNX Runtime uses too.
    DRAGOMAN_CHECKED(retain_context, &context_, device_);
    try {
      activate();
      DRAGOMAN_CHECKED(create_stream, &stream_, kNonBlocking);
      for (Event*& event : events_) DRAGOMAN_CHECKED(create_event, &event, kUntimed);
    } catch (...) {
      close();
      throw;
    }
  }

  ~Gpu() override {
    const CaptureGate::Hold hold(CaptureGate::process(), false);
    driver_.set_context(context_);
    close();
  }

  void activate() override { DRAGOMAN_CHECKED(set_context, context_); }

  void* allocate(size_t bytes) override {
    Address memory = 0;
    bytes = std::max<size_t>(bytes, 1);  // the driver rejects 0
    DRAGOMAN_CHECKED(allocate, &memory, bytes);
    const Result filled = driver_.fill(memory, 0, bytes, stream_);
    if (filled != Result::kSuccess) driver_.release(memory);
    driver_.check(filled, "fill");
    return reinterpret_cast<void*>(memory);
  }

  void release(void* memory) noexcept override { driver_.release(address(memory)); }

  void* allocate_pinned(size_t bytes) override {
    void* memory = nullptr;
    DRAGOMAN_CHECKED(allocate_pinned, &memory, std::max<size_t>(bytes, 1), 0);
    return memory;
  }

  void release_pinned(void* memory) noexcept override { driver_.release_pinned(memory); }

  void upload(void* to, const void* from, size_t bytes) override {
    DRAGOMAN_CHECKED(upload, address(to), from, bytes, stream_);
  }

  void download(void* to, const void* from, size_t bytes) override {
    DRAGOMAN_CHECKED(download, to, address(from), bytes, stream_);
  }

  void copy(void* to, const void* from, size_t bytes) override {
    DRAGOMAN_CHECKED(copy, address(to), address(from), bytes, stream_);
  }

  void copy_lines(const Lines& lines) override {
    BoxCopy box{};
    box.from.device = address(lines.from);
    box.to.device = address(lines.to);
    for (const auto [side, layout] : {std::pair{&box.from, &lines.from_layout}, {&box.to, &lines.to_layout}}) {
      side->pitch = layout->pitch;
      side->height = layout->height;
    }
    box.bytes = lines.bytes;
    box.lines = lines.lines;
    box.groups = lines.groups;
    DRAGOMAN_CHECKED(copy_box, &box, stream_);
  }

  void fill(void* to, uint8_t byte, size_t bytes) override {
    DRAGOMAN_CHECKED(fill, address(to), byte, bytes, stream_);
  }

  void synchronize() override { DRAGOMAN_CHECKED(synchronize_stream, stream_); }
  void mark(int32_t number) override { DRAGOMAN_CHECKED(record_event, event(number), stream_); }
  void wait(int32_t number) override { DRAGOMAN_CHECKED(synchronize_event, event(number)); }
  void* stream() const override { return stream_; }

 private:
  void close() noexcept {
    for (Event* event : events_)
      if (event != nullptr) driver_.destroy_event(event);
    if (stream_ != nullptr) driver_.destroy_stream(stream_);
    driver_.release_context(device_);
  }

  Event* event(int32_t number) const { return events_.at(static_cast<size_t>(number)); }

  static Address address(const void* memory) { return reinterpret_cast<Address>(memory); }

  const Driver driver_;
  int device_ = 0;
  Context* context_ = nullptr;
  Stream* stream_ = nullptr;
  std::array<Event*, kMarks> events_{};
};

}  // namespace

std::shared_ptr<Device> open_gpu(const std::string& driver, int number) {
  return std::make_shared<Gpu>(driver, number);
}

}  // namespace dragoman::cuda
