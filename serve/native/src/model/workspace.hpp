// Scratch memory of one call.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.hpp"
#include "model/buffer.hpp"
#include "model/packed_columns.hpp"

namespace dragoman {

struct Workspace {
  Buffer<float> states, normalized, wide, gate, attended;
  Buffer<std::uint8_t> quantized;
  Buffer<float> scales, attention, weights, cache;
  Buffer<float> strips, largest, sums;
  Buffer<Candidate> best;
  std::vector<Choice> choices;
  std::vector<Index> first_rows;   // of each encoded source
  std::vector<Index> row_sources;  // of each row, the source
  std::vector<FloatCache> source_caches;
  std::vector<PackedColumns> candidates;  // of each source slot
};

// The workspace of this thread, so that its memory stays in the caches of one core.
inline Workspace& own_workspace() {
  thread_local Workspace workspace;
  return workspace;
}

}  // namespace dragoman
