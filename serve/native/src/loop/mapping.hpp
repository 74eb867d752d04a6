// A range of mapped pages.
#pragma once

#include <cstddef>

namespace dragoman {

struct Mapping {
  char* data = nullptr;  // null if the pages could not be mapped
  size_t bytes = 0;
};

}  // namespace dragoman
