// Keeps exceptions inside of the C interface.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace dragoman {

// The message of the last failed call of this thread.
std::string& last_error();

// Returns the result of a function, 0 if it has none, or -1 after an exception.
template <class Function>
int32_t guarded(Function&& function) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(function())>) {
      function();
      return 0;
    } else {
      return function();
    }
  } catch (const std::exception& error) {
    last_error() = error.what();
  } catch (...) {
    last_error() = "unknown exception";
  }
  return -1;
}

template <class Structure>
void check_size(const Structure* structure) {
  if (structure->size != sizeof(Structure)) throw std::invalid_argument("structure: another size");
}

}  // namespace dragoman
