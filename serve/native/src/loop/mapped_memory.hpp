// Memory that is mapped page by page.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>

namespace dragoman {

class MappedMemory {
 public:
  // Maps a whole file, read-only.
  explicit MappedMemory(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file >= 0 && fstat(file, &status) == 0) map(static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file);
    if (file >= 0) close(file);
    if (data_ == nullptr) throw std::runtime_error(path + ": cannot be read");
  }

  // Maps zeros. Only pages that were written take memory.
  explicit MappedMemory(size_t bytes) {
    if (bytes == 0) return;
    map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (data_ == nullptr) throw std::bad_alloc();
#ifdef MADV_NOHUGEPAGE
    madvise(data_, bytes, MADV_NOHUGEPAGE);  // one filled position would take 2 MB
#endif
  }

  ~MappedMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void map(size_t bytes, int protection, int flags, int file) {
    void* mapped = mmap(nullptr, bytes, protection, flags, file, 0);
    if (mapped == MAP_FAILED) return;
    data_ = static_cast<char*>(mapped);
    bytes_ = bytes;
  }

  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace dragoman
