// What encoder and decoder layers have in common: products, norms and feed-forward networks over rows of activations.
#pragma once

#include "model/cache.hpp"
#include "model/config.hpp"
#include "model/parallel.hpp"
#include "model/weights.hpp"
#include "model/workspace.hpp"

namespace dragoman {

// The input of products; its 8-bit form is shared by all products of the same input.
struct Input {
  FloatRows floats;
  Int8Rows integers;  // if the model is int8
};

// Computes with one workspace; a short-lived object of one call. Rows have `Config::row_size` floats, zeros behind
// d_model.
class Layers {
 public:
  Layers(const Config& config, const Kernels& kernels, const Parallel& parallel, Workspace& workspace, Index rows);

  float* states() const { return states_; }      // the residual stream
  float* wide() const { return wide_; }          // [rows, wide_stride()]: queries, keys, values, or the inner layer
  float* attended() const { return attended_; }  // rows of attention's outputs
  Index wide_stride() const { return wide_stride_; }
  Index row_size() const { return config_.row_size(); }

  // One token: embedding * embedding_scale + position.
  void embed(const Embedding& embedding, Index row, std::int64_t token, Index position) const;
  // Returns the input of a sub-layer, or the output of the last one: normalized if norms come first.
  Input before(const Norm& norm) const;
  // Normalizes the residual stream if norms come last.
  void after(const Norm& norm) const;
  Input attended_input() const { return prepare({attended_, row_size()}, config_.d_model); }

  // wide = input W^T + b
  void project(const Linear& linear, const Input& input) const;
  // states += input W^T + b
  void add(const Linear& linear, const Input& input) const;
  void feed_forward(const FeedForward& part) const;
  // y = epilogue(input W^T + b) for blocks of outputs, in this thread; `y` points at the first block.
  void multiply(const Linear& linear, const Input& input, BlockRange blocks, const Epilogue& epilogue,
                OutputRows y) const;

  // Writes the key and value of a position.
  void write(const Cache& cache, Index slot, Index layer, Index position, const float* key, const float* value) const;
  void attend(const Cache& cache, Index slot, Index layer, const Attention& attention) const;

 private:
  // out = the normalized residual stream, in rows of `row_size`; may be the residual stream itself.
  void normalize(const Norm& norm, float* out) const;
  Input prepare(FloatRows x, Index inputs) const;
  void multiply_all(const Linear& linear, const Input& input, const Epilogue& epilogue, OutputRows y) const;

  const Config& config_;
  const Kernels& kernels_;
  const Parallel& parallel_;
  Index rows_;
  Index wide_stride_;
  Index quantized_stride_;
  float* states_;
  float* normalized_;
  float* wide_;
  float* gate_ = nullptr;
  float* attended_;
  std::uint8_t* quantized_ = nullptr;
  float* scales_ = nullptr;
};

}  // namespace dragoman
