// Keys and values of all slots and layers in one piece of memory.
#pragma once

#include <algorithm>

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

  // Fetches the first positions of a slot and layer, to be near when they are read.
  void prefetch(Index slot, Index layer, Index positions) const {
    const auto fetch = [](const void* memory, Index bytes) {
      for (Index i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(memory) + i, 0, 2);
    };
    const Index filled = round_up(positions, kLanes) / kLanes;
    if (scales == nullptr) {
      const FloatCache part = floats(slot, layer);
      return fetch(part.values, filled * part.value_stride * Index{sizeof(float)});
    }
    const Int8Cache part = int8(slot, layer);
    const Index size = block_size(heads, true);
    for (Index block = 0; block < filled; ++block) {
      const std::int8_t* keys = part.values + block * part.value_stride;
      fetch(keys, heads.count * size);
      // Values come by four positions: those behind the last are not read.
      const Index fours = std::min<Index>(4, round_up(positions - block * kLanes, 4) / 4);
      for (Index h = heads.count; h < 2 * heads.count; ++h) fetch(keys + h * size, fours * size / 4);
    }
    fetch(part.scales, filled * part.scale_stride * Index{sizeof(float)});
  }

  FloatCache floats(Index slot, Index layer) const {
    const Index values_of_block = 2 * heads.count * block_size(heads, false);
    return {static_cast<float*>(values) + (slot * layers + layer) * blocks * values_of_block, values_of_block};
  }
};

}  // namespace dragoman
