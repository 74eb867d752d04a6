// The tensors of a cache: values, and in 8 bits also scales.
#pragma once

#include "model/cache.hpp"
#include "operators/context.hpp"
#include "operators/node.hpp"

namespace dragoman {

inline std::size_t cache_tensors(const Config& config) { return config.int8 ? 2 : 1; }

// Throws std::invalid_argument unless the inputs or outputs from `first` have the types of a cache.
void check_cache(const Node& node, const Config& config, Side side, std::size_t first);

// Returns the cache whose tensors are the inputs from `first`. Throws std::invalid_argument if a shape is wrong.
Cache read_cache(const Context& context, const Config& config, std::size_t first, const char* name);

// Returns the cache in the memory of the outputs from `first`, with the contents of `cache`.
Cache write_cache(const Context& context, const Config& config, const Cache& cache, std::size_t first);

}  // namespace dragoman
