// The configuration of models on a device, as Python passes it (serve/native/device.py).
#pragma once

#include <cstdint>

#include "runtime/sessions.hpp"

namespace dragoman::cuda {

constexpr int64_t kNoGpu = 0;

struct DeviceConfig {
  const char *encoder, *decoder, *choose;  // paths of graphs
  const char* driver;  // name of the driver's library; null: memory of the host, for tests
  int64_t gpus;        // engines are distributed over them; `kNoGpu`: ONNX Runtime's CPU provider, for tests
  int64_t engines;
  int64_t memory_bytes;  // limit of each engine; 0: none
  int64_t captured;      // whether to capture steps as CUDA graphs
  int64_t ahead;         // whether a step starts before the one before it is read
  int64_t slots, vocabulary, begin_id, pad_id;
  int64_t max_source_tokens, max_target_tokens;
  int64_t alignment_heads;  // 0: the decoder returns no alignments
  int64_t element;          // type of the states, as ONNX numbers them
  int64_t least_capacity;   // smallest source capacity
  int64_t shrink_steps;     // steps with only shorter sources before the source capacity shrinks
  int64_t encoder_rows;     // most sources that are encoded together
  // The shape of one row with the longest source and target: heads, tokens, size.
  TensorRecords source_states, target_states;
};

}  // namespace dragoman::cuda
