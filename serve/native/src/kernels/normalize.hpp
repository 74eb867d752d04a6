// Layer norm and RMS norm of rows, with 16 partial sums.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

// (x - mean) / sqrt(variance + epsilon) * gain + bias, of R rows together: one row alone would wait for its sums. RMS
// norm has neither mean nor bias.
template <int R>
INLINE void normalize_rows(const Norm& norm, FloatRows x, OutputRows y) {
  const float width = static_cast<float>(norm.width);
  F32 sum[R], mean[R], squares[R], inverse[R];
  each<R>([&](auto r) INLINE_LAMBDA { sum[r] = mean[r] = squares[r] = broadcast(0.0f); });
  if (norm.kind == Norm::Kind::kLayer) {
    for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
      each<R>([&](auto r) INLINE_LAMBDA { sum[r] = sum[r] + load_some(x.data + r * x.stride + i, n); });
    });
    each<R>([&](auto r) INLINE_LAMBDA { mean[r] = broadcast(reduce_add(sum[r]) / width); });
  }
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    each<R>([&](auto r) INLINE_LAMBDA {
      F32 c = load_some(x.data + r * x.stride + i, n) - mean[r];
      if (n < kLanes) c = select(first_lanes(n), c, broadcast(0.0f));
      squares[r] = fma(c, c, squares[r]);
    });
  });
  each<R>([&](auto r) INLINE_LAMBDA {
    inverse[r] = broadcast(1.0f / __builtin_sqrtf(reduce_add(squares[r]) / width + norm.epsilon));
  });
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    const F32 gain = load_some(norm.gain + i, n);
    const F32 bias = norm.bias == nullptr ? broadcast(0.0f) : load_some(norm.bias + i, n);
    each<R>([&](auto r) INLINE_LAMBDA {
      const F32 c = (load_some(x.data + r * x.stride + i, n) - mean[r]) * inverse[r];
      store_some(y.data + r * y.stride + i, fma(c, gain, bias), n);
    });
  });
}

void normalize(const Norm& norm, FloatRows x, Index rows, OutputRows y) {
  with_rows(rows, [&](Index first, auto together) INLINE_LAMBDA {
    normalize_rows<together>(norm, {x.data + first * x.stride, x.stride}, {y.data + first * y.stride, y.stride});
  });
}

}  // namespace
}  // namespace dragoman
