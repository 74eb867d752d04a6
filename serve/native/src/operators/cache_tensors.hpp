// The tensors of a cache: values, and in 8 bits also scales; or the states of recurrent units, one tensor of floats.
#pragma once

#include <cstring>

#include "model/cache.hpp"
#include "operators/context.hpp"

namespace dragoman {

inline std::size_t cache_tensors(const Config& config) { return config.int8 ? 2 : 1; }

inline TensorShape cache_shape(const Cache& cache, Index last_axis) {
  return {cache.slots, cache.layers, cache.blocks, 2, cache.heads.count, last_axis};
}

// Throws std::invalid_argument unless the inputs from `first` have the types of a cache. Outputs have their sizes.
inline void check_cache(const Node& node, const Config& config, std::size_t first) {
  const ort::ElementType values = config.int8 ? ort::ElementType::kInt8 : ort::ElementType::kFloat;
  if (node.inputs() < first + cache_tensors(config) || node.input_type(first) != values ||
      (config.int8 && node.input_type(first + 1) != ort::ElementType::kFloat))
    throw std::invalid_argument(std::string("cache: expected inputs of ") +
                                (config.int8 ? "int8 values and float32 scales" : "float32 values"));
}

// Returns the cache whose tensors are the inputs from `first`. Throws std::invalid_argument if a shape is wrong.
inline Cache read_cache(const Context& context, const Config& config, std::size_t first, const std::string& name) {
  const Heads heads = config.head_shape();
  const Index size = Cache::block_size(heads, config.int8);
  const TensorShape shape = context.input_shape(first, name.c_str());
  Cache cache{nullptr, nullptr, 0, config.decoder_layers, 0, heads};
  if (shape.size() == 6) cache.slots = shape[0], cache.blocks = shape[2];
  if (shape != cache_shape(cache, size))
    throw std::invalid_argument(name + ": expected the shape [slots, " + std::to_string(cache.layers) +
                                ", blocks, 2, " + std::to_string(heads.count) + ", " + std::to_string(size) + "]");
  cache.values = const_cast<std::int8_t*>(context.input<std::int8_t>(first, name.c_str()).data);
  if (!config.int8) return cache;
  const Index scales = cache.slots * cache.layers * cache.blocks * 2 * heads.count * kLanes;
  cache.scales = const_cast<float*>(context.input<float>(first + 1, (name + ": scales").c_str(), scales).data);
  return cache;
}

inline TensorShape states_shape(const States& states) { return {states.slots, states.layers, 1, states.width}; }

// Throws std::invalid_argument unless an input has the type of states. The output has its size.
inline void check_states(const Node& node, std::size_t index) {
  if (node.inputs() <= index || node.input_type(index) != ort::ElementType::kFloat)
    throw std::invalid_argument("cache: expected an input of float32 states");
}

// Returns the states that an input holds. Throws std::invalid_argument if its shape is wrong.
inline States read_states(const Context& context, const Config& config, std::size_t index, const char* name) {
  const TensorShape shape = context.input_shape(index, name);
  States states{nullptr, shape.empty() ? 0 : shape[0], config.decoder_layers, config.d_model};
  if (shape != states_shape(states))
    throw std::invalid_argument(std::string(name) + ": expected the shape [slots, " + std::to_string(states.layers) +
                                ", 1, " + std::to_string(states.width) + "]");
  states.values = const_cast<float*>(context.input<float>(index, name).data);
  return states;
}

// Returns the output, with a copy of the input unless both are the same memory.
template <class T>
T* copied_output(const Context& context, std::size_t index, const TensorShape& shape, const void* input) {
  T* output = context.output<T>(index, shape);
  std::size_t bytes = sizeof(T);
  for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
  if (output != input && bytes > 0) std::memmove(output, input, bytes);
  return output;
}

// Returns the cache in the memory of the outputs from `first`, with the contents of `cache`.
inline Cache write_cache(const Context& context, const Config& config, const Cache& cache, std::size_t first) {
  Cache output = cache;
  const TensorShape shape = cache_shape(cache, Cache::block_size(cache.heads, config.int8));
  if (config.int8) output.values = copied_output<std::int8_t>(context, first, shape, cache.values);
  else output.values = copied_output<float>(context, first, shape, cache.values);
  if (config.int8) output.scales = copied_output<float>(context, first + 1, cache_shape(cache, kLanes), cache.scales);
  return output;
}

// Returns the states in the memory of an output, with the contents of `states`.
inline States write_states(const Context& context, const States& states, std::size_t index) {
  States output = states;
  output.values = copied_output<float>(context, index, states_shape(states), states.values);
  return output;
}

}  // namespace dragoman
