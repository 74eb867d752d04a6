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

  // The rows from one on.
  Input from(Index row) const {
    if (integers.data == nullptr) return {{floats.data + row * floats.stride, floats.stride}, {}};
    return {floats, {integers.data + row * integers.stride, integers.scales + row, integers.stride}};
  }
};

// Computes with one workspace; a short-lived object of one call. Rows have `Config::row_size` floats, zeros behind
// d_model.
class Layers {
 public:
  Layers(const Config& config, const Kernels& kernels, const Parallel& parallel, Workspace& workspace, Index rows)
      : config_(config),
        kernels_(kernels),
        parallel_(parallel),
        rows_(rows),
        wide_stride_(round_up(std::max(3 * config.d_model, config.d_ff), kLanes)),
        quantized_stride_(kernels.int8_stride(std::max(config.d_model, config.d_ff))),
        states_(workspace.states.fit(rows * config.row_size())),
        normalized_(workspace.normalized.fit(rows * config.row_size())),
        wide_(workspace.wide.fit(rows * wide_stride_)),
        attended_(workspace.attended.fit(rows * config.row_size())) {
    if (config.gated) gate_ = workspace.gate.fit(rows * wide_stride_);
    if (config.int8) {
      quantized_ = workspace.quantized.fit(rows * quantized_stride_);
      scales_ = workspace.scales.fit(rows);
    }
  }

  float* wide() const { return wide_; }          // [rows, wide_stride()]: queries, keys, values, gates, or the inner layer
  float* attended() const { return attended_; }  // rows of attention's outputs
  Index wide_stride() const { return wide_stride_; }
  Index row_size() const { return config_.row_size(); }

  // One token: embedding * embedding_scale + position.
  void embed(const Embedding& embedding, Index row, std::int64_t token, Index position) const {
    const float* of_position = embedding.positions + position * config_.d_model;
    const Linear& table = embedding.table;
    const auto id = static_cast<Index>(token);
    float* out = states_ + row * row_size();
    if (config_.int8)
      kernels_.embed_int8(table.integers, id, config_.embedding_scale, of_position, out);
    else
      kernels_.embed_float(table.floats, id, config_.embedding_scale, of_position, out);
    if (config_.embedding_norm) kernels_.normalize(embedding.norm, {out, row_size()}, 1, {out, row_size()});
  }

  // Returns the input of a sub-layer, or the output of the last one: normalized if norms come first.
  Input before(const Norm& norm) const {
    if (config_.pre_norm) normalize(norm, normalized_);
    return prepare({config_.pre_norm ? normalized_ : states_, row_size()}, config_.d_model);
  }

  // Normalizes the residual stream if norms come last.
  void after(const Norm& norm) const {
    if (!config_.pre_norm) normalize(norm, states_);
  }

  // wide = input W^T + b
  void project(const Linear& linear, const Input& input) const {
    multiply_all(linear, input, {}, {wide_, wide_stride_});
  }

  // states += input W^T + b
  void add(const Linear& linear, const Input& input) const {
    Epilogue epilogue;
    epilogue.residual = {states_, row_size()};
    multiply_all(linear, input, epilogue, {states_, row_size()});
  }

  // `attend` reads what `in` gives in `wide`, and writes `attended`.
  template <class F>
  void attention(const AttentionPart& part, F attend) const {
    project(part.in, before(part.norm));
    attend();
    add(part.out, prepare({attended_, row_size()}, config_.d_model));
    after(part.norm);
  }

  void recur(const RecurrentPart& part, const StateRows& states) const {
    project(part.gates, before(part.norm));
    parallel_.split(rows_, kRowsOfTask, [&](Index, Index first, Index last) {
      kernels_.recur({wide_ + first * wide_stride_, wide_stride_}, last - first, config_.d_model,
                     {states.data, states.stride, states.slots + first, states.positions + first},
                     {states_ + first * row_size(), row_size()});
    });
    after(part.norm);
  }

  void feed_forward(const FeedForward& part) const {
    const Input input = before(part.norm);
    Epilogue inner;
    inner.activation = config_.activation;
    if (config_.gated) {
      Epilogue gate;
      gate.activation = Activation::kSilu;
      multiply_all(part.gate, input, gate, {gate_, wide_stride_});
      inner.activation = Activation::kNone;
      inner.factor = {gate_, wide_stride_};
    }
    multiply_all(part.inner, input, inner, {wide_, wide_stride_});
    add(part.outer, prepare({wide_, wide_stride_}, config_.d_ff));
    after(part.norm);
  }

  // y = epilogue(input W^T + b) for blocks of outputs, in this thread; `y` points at the first block.
  void multiply(const Linear& linear, const Input& input, Index rows, BlockRange blocks, const Epilogue& epilogue,
                OutputRows y) const {
    if (linear.int8)
      kernels_.multiply_int8(linear.integers, input.integers, rows, blocks, epilogue, y);
    else
      kernels_.multiply_float(linear.floats, input.floats, rows, blocks, epilogue, y);
  }

  // Writes the key and value of a position.
  void write(const Cache& cache, Index slot, Index layer, Index position, const float* key, const float* value) const {
    if (cache.scales != nullptr)
      kernels_.write_int8(cache.heads, cache.int8(slot, layer), position, key, value);
    else
      kernels_.write_float(cache.heads, cache.floats(slot, layer), position, key, value);
  }

  void attend(const Cache& cache, Index slot, Index layer, const Attention& attention) const {
    if (cache.scales != nullptr)
      kernels_.attend_int8(cache.heads, cache.int8(slot, layer), attention);
    else
      kernels_.attend_float(cache.heads, cache.floats(slot, layer), attention);
  }

 private:
  static constexpr Index kBlocksOfTask = 4;                 // 64 outputs
  static constexpr Index kRowsOfTask = 16;                  // of quantization and norms
  static constexpr Index kProductsOfTask = Index{1} << 18;  // fewer are faster in one thread

  // out = the normalized residual stream, in rows of `row_size`; may be the residual stream itself.
  void normalize(const Norm& norm, float* out) const {
    parallel_.split(rows_, kRowsOfTask, [&](Index, Index first, Index last) {
      const Index at = first * row_size();
      kernels_.normalize(norm, {states_ + at, row_size()}, last - first, {out + at, row_size()});
    });
  }

  Input prepare(FloatRows x, Index inputs) const {
    if (!config_.int8) return {x, {}};
    const Int8Rows out{quantized_, scales_, quantized_stride_};
    parallel_.split(rows_, kRowsOfTask, [&](Index, Index first, Index last) {
      kernels_.quantize({x.data + first * x.stride, x.stride}, last - first, inputs,
                        {out.data + first * out.stride, out.scales + first, out.stride});
    });
    return {x, out};
  }

  static FloatRows at_column(FloatRows rows, Index column) {
    return {rows.data == nullptr ? nullptr : rows.data + column, rows.stride};
  }

  void multiply_all(const Linear& linear, const Input& input, const Epilogue& epilogue, OutputRows y) const {
    const Index per_block = std::max<Index>(1, rows_ * linear.inputs * kLanes);
    const Index least = std::max(kBlocksOfTask, round_up(kProductsOfTask / per_block, kBlocksOfTask));
    parallel_.split(linear.blocks(), least, [&](Index, Index first, Index last) {
      const Index column = first * kLanes;
      const Epilogue part{epilogue.activation, at_column(epilogue.factor, column),
                          at_column(epilogue.residual, column)};
      multiply(linear, input, rows_, {first, last}, part, {y.data + column, y.stride});
    });
  }

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
