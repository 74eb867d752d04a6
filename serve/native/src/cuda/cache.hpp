// The KV cache of one engine in device memory: written, copied and resized there.
//
// States of one shape form a block [states, rows, heads, capacity, size] without gaps. A step binds the first rows of
// each state, and a row is copied in all states of a block at once. CUDA's cross-attention reads the whole source
// capacity, which therefore follows the longest running source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/config.hpp"
#include "cuda/device.hpp"
#include "cuda/sessions.hpp"
#include "cuda/staging.hpp"

namespace dragoman::cuda {

// States of one shape.
struct StateBlock {
  std::vector<std::string> names;
  ElementType element;
  int64_t rows, heads, capacity, size;
  DeviceMemory memory;
  DeviceMemory encoded;  // of a source: results of the encoder
  DeviceMemory spare;    // of a source: room for one state

  size_t row_bytes() const;
  // Returns where a state begins in memory with so many rows of each.
  char* state(const DeviceMemory& block, size_t number, int64_t block_rows) const;
  Shape shape(int64_t first_rows) const { return {first_rows, heads, capacity, size}; }
  // Returns the shape of all rows of all states in words of 4 bytes.
  Shape matrix(int64_t block_rows) const;
};

class DeviceCache {
 public:
  // Allocates the states with the largest source capacity.
  DeviceCache(const DeviceConfig& config, std::shared_ptr<Device> device);

  // Bytes of staging that a run of this class takes.
  size_t staging_bytes() const;

  int64_t source_capacity() const { return source_.at(0).capacity; }

  // Binds the first rows of all states. The decoder writes target states in place.
  void bind_decoder(DeviceBinding& binding, int64_t rows) const;
  void bind_encoder(DeviceBinding& binding, int64_t rows) const;

  // Copies sources that the encoder wrote, of so many rows, to rows; `counts` are those of each source.
  void write(const DeviceSessions& sessions, Staging& staging, int64_t encoded_rows, const int32_t* counts,
             size_t sources, const int32_t* rows);
  // Copies the target states of rows over others of the same source; no row is both.
  void branch(const DeviceSessions& sessions, Staging& staging, const std::vector<int64_t>& sources,
              const std::vector<int64_t>& targets);
  // Changes the source capacity, which must hold the source of every row.
  void resize(const DeviceSessions& sessions, Staging& staging, int64_t capacity);
  // Overwrites all states, to show that a step depends on no old value.
  void fill(uint8_t byte);

 private:
  void copy(const DeviceSessions& sessions, Staging& staging, const DeviceMemory& from, int64_t from_rows,
            const StateBlock& block, const std::vector<int64_t>& sources, const std::vector<int64_t>& targets) const;

  const std::shared_ptr<Device> device_;
  const size_t copied_rows_;
  std::vector<StateBlock> source_, target_;
};

}  // namespace dragoman::cuda
