#include <cstdlib>
#include <cstring>
#include <new>

#include "cuda/device.hpp"

namespace dragoman::cuda {
namespace {

class Host : public Device {
 public:
  void activate() override {}
  void* allocate(size_t bytes) override { return zeros(bytes); }
  void release(void* memory) noexcept override { std::free(memory); }
  void* allocate_pinned(size_t bytes) override { return zeros(bytes); }
  void release_pinned(void* memory) noexcept override { std::free(memory); }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_lines(const Lines& lines) override {
    for (size_t group = 0; group < lines.groups; ++group)
      for (size_t line = 0; line < lines.lines; ++line) {
        const auto offset = [&](const Lines::Layout& layout) { return (group * layout.height + line) * layout.pitch; };
        std::memcpy(lines.to + offset(lines.to_layout), lines.from + offset(lines.from_layout), lines.bytes);
      }
  }
  void fill(void* to, uint8_t byte, size_t bytes) override { std::memset(to, byte, bytes); }
  void synchronize() override {}
  void mark(int32_t) override {}
  void wait(int32_t) override {}
  void* stream() const override { return nullptr; }

 private:
  static void* zeros(size_t bytes) {
    void* memory = std::calloc(bytes > 0 ? bytes : 1, 1);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
};

}  // namespace

std::shared_ptr<Device> open_host() { return std::make_shared<Host>(); }

}  // namespace dragoman::cuda
