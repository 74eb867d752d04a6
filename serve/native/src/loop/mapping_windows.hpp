// Maps files and zeros on Windows. The library links there, and has not run.
#pragma once

#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <string>

#include "loop/mapping.hpp"

namespace dragoman {

inline Mapping map_file(const std::string& path) {
  const HANDLE file =
      CreateFileA(path.c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE) return {};
  Mapping mapping;
  LARGE_INTEGER bytes;
  const HANDLE section = CreateFileMappingA(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (section != nullptr && GetFileSizeEx(file, &bytes)) {
    mapping = {static_cast<char*>(MapViewOfFile(section, FILE_MAP_READ, 0, 0, 0)), static_cast<size_t>(bytes.QuadPart)};
  }
  if (section != nullptr) CloseHandle(section);
  CloseHandle(file);
  return mapping;
}

inline Mapping map_zeros(size_t bytes) {
  return {static_cast<char*>(VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE)), bytes};
}

// A file is a view of a section, and zeros are not.
inline void unmap(const Mapping& mapping) {
  if (!UnmapViewOfFile(mapping.data)) VirtualFree(mapping.data, 0, MEM_RELEASE);
}

}  // namespace dragoman
