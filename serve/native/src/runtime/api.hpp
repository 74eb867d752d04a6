// The C interface of models in sessions of ONNX Runtime, for Python (serve/native/loop.py). Calls as in loop/api.hpp.
#pragma once

#include <cstdint>

#include "loop/api.hpp"

struct DragomanModel;

// A tensor of the file of weights, or the cache of one slot.
struct DragomanTensor {
  const char* name;
  int64_t type;  // as ONNX numbers the types of elements
  int64_t rank;
  int64_t shape[8];
  uint64_t offset_bytes;
};

struct DragomanModelConfig {
  uint64_t size;
  const char *encoder, *decoder, *choose, *weights;  // paths
  const DragomanTensor *encoder_weights, *decoder_weights, *source_cache, *target_cache;
  uint64_t encoder_weight_count, decoder_weight_count, source_cache_count, target_cache_count;
  int64_t threads, vocabulary, alignment_heads;
};

// Opens the sessions. Python must have registered the operators before.
DRAGOMAN_API int32_t dragoman_model_open(const DragomanModelConfig* config, DragomanModel** model);
// Closes the sessions when no engine uses them.
DRAGOMAN_API void dragoman_model_close(DragomanModel* model);
// Adds an engine with caches of its own to a loop, without starting it.
DRAGOMAN_API int32_t dragoman_loop_add_engine(DragomanLoop* loop, DragomanModel* model, int64_t slots);
