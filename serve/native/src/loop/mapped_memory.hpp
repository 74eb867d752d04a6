// Memory that is mapped page by page.
#pragma once

#if defined(_WIN32)
#include "loop/mapping_windows.hpp"
#else
#include "loop/mapping_posix.hpp"
#endif

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>

namespace dragoman {

class MappedMemory {
 public:
  // Maps a whole file, read-only.
  explicit MappedMemory(const std::string& path) : mapping_(map_file(path)) {
    if (mapping_.data == nullptr) throw std::runtime_error(path + ": cannot be read");
  }

  // Maps zeros. Only pages that were written take memory.
  explicit MappedMemory(size_t bytes) {
    if (bytes == 0) return;
    mapping_ = map_zeros(bytes);
    if (mapping_.data == nullptr) throw std::bad_alloc();
  }

  ~MappedMemory() {
    if (mapping_.data != nullptr) unmap(mapping_);
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  char* data() const { return mapping_.data; }
  size_t bytes() const { return mapping_.bytes; }

 private:
  Mapping mapping_;
};

}  // namespace dragoman
