// Layer norm and RMS norm of rows, with 16 partial sums.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {


// (x - mean) / sqrt(variance + epsilon) * gain + bias.
void layer_norm(const Norm& norm, const float* x, float* y) {
  const float width = static_cast<float>(norm.width);
  F32 sum = broadcast(0.0f);
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA { sum = sum + load_some(x + i, n); });
  const F32 mean = broadcast(reduce_add(sum) / width);
  F32 squares = broadcast(0.0f);
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    F32 c = load_some(x + i, n) - mean;
    if (n < kLanes) c = select(first_lanes(n), c, broadcast(0.0f));
    squares = fma(c, c, squares);
  });
  const F32 inverse = broadcast(1.0f / __builtin_sqrtf(reduce_add(squares) / width + norm.epsilon));
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    const F32 c = (load_some(x + i, n) - mean) * inverse;
    store_some(y + i, fma(c, load_some(norm.gain + i, n), load_some(norm.bias + i, n)), n);
  });
}

// x / sqrt(mean(x^2) + epsilon) * gain.
void rms_norm(const Norm& norm, const float* x, float* y) {
  F32 squares = broadcast(0.0f);
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    const F32 v = load_some(x + i, n);
    squares = fma(v, v, squares);
  });
  const float mean = reduce_add(squares) / static_cast<float>(norm.width);
  const F32 inverse = broadcast(1.0f / __builtin_sqrtf(mean + norm.epsilon));
  for_lanes(norm.width, [&](Index i, Index n) INLINE_LAMBDA {
    store_some(y + i, load_some(x + i, n) * inverse * load_some(norm.gain + i, n), n);
  });
}

void normalize(const Norm& norm, FloatRows x, Index rows, OutputRows y) {
  const auto one = norm.kind == Norm::Kind::kLayer ? layer_norm : rms_norm;
  for (Index r = 0; r < rows; ++r) one(norm, x.data + r * x.stride, y.data + r * y.stride);
}

}  // namespace
}  // namespace dragoman
