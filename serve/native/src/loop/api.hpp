// What the functions of the C interface share.
//
// A call returns 0, or 1 where it says so, or -1 after an error that `dragoman_loop_error` describes to the same
// thread. No exception crosses the interface.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>

#define DRAGOMAN_API extern "C" __attribute__((visibility("default")))

namespace dragoman {

// The message of the last failed call of this thread.
inline std::string& last_error() {
  thread_local std::string message;
  return message;
}

// Calls a function. Returns 0, or 1 if the function returned false, or -1 after an exception.
template <class Function>
int32_t guarded(Function&& function) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(function())>) {
      function();
      return 0;
    } else {
      return function() ? 0 : 1;
    }
  } catch (const std::exception& error) {
    last_error() = error.what();
  } catch (...) {
    last_error() = "unknown exception";
  }
  return -1;
}

}  // namespace dragoman
