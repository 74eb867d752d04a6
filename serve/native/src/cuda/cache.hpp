// The KV cache of one engine in device memory: written, copied and resized there.
//
// States of one shape form a block [states, rows, heads, capacity, size] without gaps. A step binds the first rows of
// each state. One copy moves a row in all states of a block, and only the tokens that it has: ONNX Runtime's operators
// would copy the whole capacity through a buffer. CUDA's cross-attention reads the whole source capacity, which
// therefore follows the longest running source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/config.hpp"
#include "cuda/device.hpp"
#include "cuda/sessions.hpp"

namespace dragoman::cuda {

// States of one shape.
struct StateBlock {
  std::vector<std::string> names;
  ElementType element;
  int64_t rows, heads, capacity, size;
  DeviceMemory memory;
  DeviceMemory encoded;  // of a source: results of the encoder
  DeviceMemory spare;    // of a source: room for one state

  size_t token_bytes() const;  // of a head
  size_t row_bytes() const;
  // Returns where a state begins in memory with so many rows of each.
  char* state(const DeviceMemory& block, size_t number, int64_t block_rows) const;
  Shape shape(int64_t first_rows) const { return {first_rows, heads, capacity, size}; }
};

// A row that is copied over another one, with its first tokens.
struct RowCopy {
  int32_t from, to, tokens;
};

class DeviceCache {
 public:
  // Allocates the states with the largest source capacity.
  DeviceCache(const DeviceConfig& config, std::shared_ptr<Device> device);

  int64_t source_capacity() const { return source_.at(0).capacity; }

  // Binds the first rows of all states. The decoder writes target states in place.
  void bind_decoder(DeviceBinding& binding, int64_t rows) const;
  void bind_encoder(DeviceBinding& binding, int64_t rows) const;

  // Copies sources that the encoder wrote, of so many rows, to rows; `counts` are those of each source.
  void write(int64_t encoded_rows, const int32_t* counts, size_t sources, const int32_t* rows);
  // Copies the target states of a row over another one of the same source.
  void branch(const RowCopy& rows);
  // Changes the source capacity, which must hold the source of every row. After a failure, sources are lost.
  void resize(int64_t capacity);
  // Overwrites all states, to show that a step depends on no old value.
  void fill(uint8_t byte);

 private:
  void copy(const DeviceMemory& from, int64_t from_rows, const StateBlock& block, const RowCopy& rows) const;

  const std::shared_ptr<Device> device_;
  std::vector<StateBlock> source_, target_;
};

}  // namespace dragoman::cuda
