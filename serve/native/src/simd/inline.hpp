// Forced inlining, and loops whose index is a constant.
#pragma once

#include <utility>

// With the checks of the address sanitizer, too, inlining everything takes minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(DRAGOMAN_CALLS)
#define INLINE inline
#define INLINE_LAMBDA
#else
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#endif

namespace dragoman {
namespace {

template <int N>
struct Constant {
  INLINE constexpr operator int() const { return N; }
};

template <class F, int... I>
INLINE void each_of(F& f, std::integer_sequence<int, I...>) {
  (f(Constant<I>{}), ...);
}

// Calls f with 0, 1, ..., N - 1 as constants. GCC keeps an array in registers only if no loop indexes it.
template <int N, class F>
INLINE void each(F f) {
  each_of(f, std::make_integer_sequence<int, N>{});
}

}  // namespace
}  // namespace dragoman
