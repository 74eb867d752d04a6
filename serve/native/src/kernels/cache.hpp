// Writes the key and the value of one position to a cache.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

// Bytes of a head's keys, or of its values, in a block.
INLINE Index head_bytes(Heads heads) { return 16 * round_up(heads.size, 4); }

// Keys [Dp / 4, 16 positions, 4].
INLINE void write_int8_key(const float* key, Index size, Index at, float factor, std::int8_t* to) {
  for_lanes(size, [&](Index i, Index n) INLINE_LAMBDA {
    std::int8_t bytes[16];
    store_bytes(bytes, round_to_byte(load_some(key + i, n) * broadcast(factor)));
    for (Index j = 0; j < n; j += 4) std::memcpy(to + 16 * (i + j) + 4 * at, bytes + j, 4);
  });
}

// Values [4, Dp, 4 positions]. Whole vectors are read, changed and written, so that they can be read again at once.
INLINE void write_int8_value(const float* value, Index size, Index at, float factor, std::int8_t* to) {
  const int shift = static_cast<int>(8 * (at % 4));
  const I32 low = broadcast(std::int32_t{255});
  const I32 others = broadcast(std::int32_t{-1}) - (low << shift);
  std::int8_t* group = to + at / 4 * round_up(size, 4) * 4;
  for_lanes(size, [&](Index i, Index n) INLINE_LAMBDA {
    const I32 q = round_to_byte(load_some(value + i, n) * broadcast(factor));
    if (n == kLanes) {
      std::int32_t four[16];
      std::memcpy(four, group + 4 * i, sizeof four);
      store(four, (load(four) & others) | ((q & low) << shift));
      std::memcpy(group + 4 * i, four, sizeof four);
    } else {
      std::int8_t bytes[16];
      store_bytes(bytes, q);
      for (Index j = 0; j < n; ++j) group[4 * (i + j) + at % 4] = bytes[j];
    }
  });
}

void write_int8(Heads heads, const Int8Cache& cache, Index position, const float* key, const float* value) {
  const Index block = position / kLanes, at = position % kLanes, bytes = head_bytes(heads), size = heads.size;
  std::int8_t* keys = cache.values + block * cache.value_stride;
  float* scales = cache.scales + block * cache.scale_stride + at;
  for (Index h = 0; h < heads.count; ++h, key += size, value += size, keys += bytes, scales += kLanes) {
    const Scaling of_key = scaling(max_bits(key, size), 127.0f), of_value = scaling(max_bits(value, size), 127.0f);
    scales[0] = of_key.scale;
    scales[heads.count * kLanes] = of_value.scale;
    write_int8_key(key, size, at, of_key.factor, keys);
    write_int8_value(value, size, at, of_value.factor, keys + heads.count * bytes);
  }
}

void write_float(Heads heads, const FloatCache& cache, Index position, const float* key, const float* value) {
  const Index at = position % kLanes, size = heads.size;
  float* keys = cache.values + position / kLanes * cache.value_stride;
  for (Index i = 0; i < heads.count * size; ++i) keys[i * kLanes + at] = key[i];
  float* values = keys + heads.count * size * kLanes;
  for (Index h = 0; h < heads.count; ++h)
    for_lanes(size, [&](Index i, Index n) INLINE_LAMBDA {
      store_some(values + (h * kLanes + at) * size + i, load_some(value + h * size + i, n), n);
    });
}

}  // namespace
}  // namespace dragoman
