// Maps files and zeros on Linux and macOS.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "loop/mapping.hpp"

namespace dragoman {

inline Mapping map_pages(size_t bytes, int protection, int flags, int file) {
  void* mapped = mmap(nullptr, bytes, protection, flags, file, 0);
  return mapped == MAP_FAILED ? Mapping{} : Mapping{static_cast<char*>(mapped), bytes};
}

inline Mapping map_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status {};
  Mapping mapping;
  if (fstat(file, &status) == 0) mapping = map_pages(static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file);
  close(file);
  return mapping;
}

inline Mapping map_zeros(size_t bytes) {
  const Mapping mapping = map_pages(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
#ifdef MADV_NOHUGEPAGE
  if (mapping.data != nullptr) madvise(mapping.data, bytes, MADV_NOHUGEPAGE);  // one filled position would take 2 MB
#endif
  return mapping;
}

inline void unmap(const Mapping& mapping) { munmap(mapping.data, mapping.bytes); }

}  // namespace dragoman
