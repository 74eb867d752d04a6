// Layer norm and RMS norm of rows, with 16 partial sums.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

// (x - mean) / sqrt(variance + epsilon) * gain + bias, of R rows together: one row alone would wait for its sums.
template <int R>
INLINE void layer_norm(const Norm& norm, FloatRows x, OutputRows y) {
  const float width = static_cast<float>(norm.width);
  F32 sum[R], mean[R], squares[R], inverse[R];
  each<R>([&](auto r) INLINE_LAMBDA { sum[r] = squares[r] = broadcast(0.0f); });
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    each<R>([&](auto r) INLINE_LAMBDA { sum[r] = sum[r] + load_some(x.data + r * x.stride + i, n); });
  });
  each<R>([&](auto r) INLINE_LAMBDA { mean[r] = broadcast(reduce_add(sum[r]) / width); });
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
    const F32 gain = load_some(norm.gain + i, n), bias = load_some(norm.bias + i, n);
    each<R>([&](auto r) INLINE_LAMBDA {
      const F32 c = (load_some(x.data + r * x.stride + i, n) - mean[r]) * inverse[r];
      store_some(y.data + r * y.stride + i, fma(c, gain, bias), n);
    });
  });
}

// x / sqrt(mean(x^2) + epsilon) * gain, of R rows together.
template <int R>
INLINE void rms_norm(const Norm& norm, FloatRows x, OutputRows y) {
  F32 squares[R], inverse[R];
  each<R>([&](auto r) INLINE_LAMBDA { squares[r] = broadcast(0.0f); });
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    each<R>([&](auto r) INLINE_LAMBDA {
      const F32 v = load_some(x.data + r * x.stride + i, n);
      squares[r] = fma(v, v, squares[r]);
    });
  });
  each<R>([&](auto r) INLINE_LAMBDA {
    const float mean = reduce_add(squares[r]) / static_cast<float>(norm.width);
    inverse[r] = broadcast(1.0f / __builtin_sqrtf(mean + norm.epsilon));
  });
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    const F32 gain = load_some(norm.gain + i, n);
    each<R>([&](auto r) INLINE_LAMBDA {
      store_some(y.data + r * y.stride + i, load_some(x.data + r * x.stride + i, n) * inverse[r] * gain, n);
    });
  });
}

void normalize(const Norm& norm, FloatRows x, Index rows, OutputRows y) {
  with_rows(rows, [&](Index first, auto together) INLINE_LAMBDA {
    const FloatRows from{x.data + first * x.stride, x.stride};
    const OutputRows to{y.data + first * y.stride, y.stride};
    if (norm.kind == Norm::Kind::kLayer) layer_norm<together>(norm, from, to);
    else rms_norm<together>(norm, from, to);
  });
}

}  // namespace
}  // namespace dragoman
