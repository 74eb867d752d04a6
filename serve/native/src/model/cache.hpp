// What all slots and layers keep, in one piece of memory: keys and values, or the states of recurrent units.
#pragma once

#include "kernels/kernels.hpp"

namespace dragoman {

// int8: values int8 [slots, layers, blocks, 2, H, 16 * Dp] and scales f32 [slots, layers, blocks, 2, H, 16].
// Float: values f32 [slots, layers, blocks, 2, H, 16 * D], no scales.
struct Cache {
  void* values;
  float* scales;
  Index slots;
  Index layers;
  Index blocks;
  Heads heads;

  // The last axis of the values.
  static Index block_size(Heads heads, bool int8) {
    return kLanes * (int8 ? round_up(heads.size, 4) : heads.size);
  }
  Index capacity() const { return blocks * kLanes; }

  Int8Cache int8(Index slot, Index layer) const {
    const Index values_of_block = 2 * heads.count * block_size(heads, true), scales_of_block = 2 * heads.count * kLanes;
    const Index block = (slot * layers + layer) * blocks;
    return {static_cast<std::int8_t*>(values) + block * values_of_block, scales + block * scales_of_block,
            values_of_block, scales_of_block};
  }

  FloatCache floats(Index slot, Index layer) const {
    const Index values_of_block = 2 * heads.count * block_size(heads, false);
    return {static_cast<float*>(values) + (slot * layers + layer) * blocks * values_of_block, values_of_block};
  }
};

// f32 [slots, layers, 1, d_model]: no state grows with its row.
struct States {
  float* values;
  Index slots;
  Index layers;
  Index width;

  StateRows rows(Index layer, const std::int32_t* slots_of_rows, const std::int32_t* positions) const {
    return {values + layer * width, layers * width, slots_of_rows, positions};
  }
};

}  // namespace dragoman
