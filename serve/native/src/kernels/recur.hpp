// The simpler simple recurrent unit: each row has a state of W floats, and no state depends on another one.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

void recur(FloatRows x, Index rows, Index width, const StateRows& states, OutputRows y) {
  for (Index r = 0; r < rows; ++r) {
    const float *input = x.data + r * x.stride, *gate = input + width;
    float *state = states.data + states.slots[r] * states.stride, *output = y.data + r * y.stride;
    const bool first = states.positions[r] == 0;
    for_lanes(width, [&](Index i, Index n) INLINE_LAMBDA {
      const F32 share = sigmoid(load_some(gate + i, n));
      const F32 added = (broadcast(1.0f) - share) * load_some(input + i, n);
      const F32 next = first ? added : fma(share, load_some(state + i, n), added);
      store_some(state + i, next, n);
      store_some(output + i, load_some(output + i, n) + max(broadcast(0.0f), next), n);
    });
  }
}

}  // namespace
}  // namespace dragoman
