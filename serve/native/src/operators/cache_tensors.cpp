#include "operators/cache_tensors.hpp"

#include <cstring>

namespace dragoman {

namespace {

TensorShape shape_of(const Cache& cache, Index last_axis) {
  return {cache.slots, cache.layers, cache.blocks, 2, cache.heads.count, last_axis};
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

}  // namespace

void check_cache(const Node& node, const Config& config, Side side, std::size_t first) {
  const std::size_t end = first + cache_tensors(config), count = node.count(side);
  const ort::ElementType values = config.int8 ? ort::ElementType::kInt8 : ort::ElementType::kFloat;
  if (count < end || (side == Side::kOutputs && count > end) || node.type(side, first) != values ||
      (config.int8 && node.type(side, first + 1) != ort::ElementType::kFloat))
    throw std::invalid_argument(std::string("cache: expected ") + (side == Side::kInputs ? "inputs" : "outputs") +
                                " of " + (config.int8 ? "int8 values and float32 scales" : "float32 values"));
}

Cache read_cache(const Context& context, const Config& config, std::size_t first, const char* name) {
  const Heads heads = config.head_shape();
  const Index size = Cache::block_size(heads, config.int8);
  const TensorShape shape = context.input_shape(first, name);
  Cache cache{nullptr, nullptr, 0, config.decoder_layers, 0, heads};
  if (shape.size() == 6) cache.slots = shape[0], cache.blocks = shape[2];
  if (shape != shape_of(cache, size))
    throw std::invalid_argument(std::string(name) + ": expected the shape [slots, " + std::to_string(cache.layers) +
                                ", blocks, 2, " + std::to_string(heads.count) + ", " + std::to_string(size) + "]");
  cache.values = const_cast<std::int8_t*>(context.input<std::int8_t>(first, name).data);
  const Index scales = cache.slots * cache.layers * cache.blocks * 2 * heads.count * kLanes;
  const std::string of_scales = std::string(name) + ": scales";
  if (config.int8) cache.scales = const_cast<float*>(context.input<float>(first + 1, of_scales.c_str(), scales).data);
  return cache;
}

Cache write_cache(const Context& context, const Config& config, const Cache& cache, std::size_t first) {
  Cache output = cache;
  const TensorShape shape = shape_of(cache, Cache::block_size(cache.heads, config.int8));
  if (!config.int8) {
    output.values = copied_output<float>(context, first, shape, cache.values);
  } else {
    output.values = copied_output<std::int8_t>(context, first, shape, cache.values);
    output.scales = copied_output<float>(context, first + 1, shape_of(cache, kLanes), cache.scales);
  }
  return output;
}

}  // namespace dragoman
