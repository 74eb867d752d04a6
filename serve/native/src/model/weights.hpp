// Weights as views of tensors that are given in a fixed order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"
#include "model/config.hpp"
#include "ort/abi.hpp"

namespace dragoman {

struct Tensor {
  ort::ElementType type;
  std::vector<std::int64_t> shape;
  const void* data;
};

// A matrix in the precision of the model.
struct Linear {
  bool int8;
  Int8Matrix integers;  // if `int8`
  FloatMatrix floats;   // else
  Index outputs;
  Index inputs;
  Index blocks() const { return round_up(outputs, kLanes) / kLanes; }
};

struct Embedding {
  Linear table;  // [tokens rounded up to whole blocks, d_model], without offset and bias
  const float* positions;
  Index max_length;  // positions
  Norm norm;         // if `embedding_norm`
};

// The projections before and after an attention.
struct AttentionPart {
  Linear in;   // to queries, or to queries, keys and values
  Linear out;
  Norm norm;
};

// A recurrent unit: the projections of its input and of its gate are one.
struct RecurrentPart {
  Linear gates;
  Norm norm;
};

struct FeedForward {
  Linear gate;  // if the model is gated
  Linear inner;
  Linear outer;
  Norm norm;
};

// Takes weights from the front of a list. Every method throws std::invalid_argument that names a wrong tensor.
// Packed vectors are the first tensors: floats, then integers.
class WeightReader {
 public:
  WeightReader(const Config& config, std::vector<Tensor> tensors) : config_(config), tensors_(std::move(tensors)) {}

  // A table of embeddings has neither offset nor bias.
  Linear linear(const std::string& name, Index outputs, Index inputs, bool table = false) {
    const Index padded = round_up(outputs, kLanes), blocks = padded / kLanes, fours = round_up(inputs, 4) / 4;
    Linear linear{config_.int8, {}, {}, outputs, inputs};
    if (config_.int8) {
      const auto* weight = values<std::int8_t>(name + " weight", {blocks, fours, kLanes, 4});
      const auto* scale = values<float>(name + " scale", {padded});
      const auto* offset = table ? nullptr : values<std::int32_t>(name + " offset", {padded});
      linear.integers = {weight, scale, offset, nullptr, outputs, inputs};
    } else {
      linear.floats = {values<float>(name + " weight", {blocks, inputs, kLanes}), nullptr, outputs, inputs};
    }
    if (!table) linear.integers.bias = linear.floats.bias = values<float>(name + " bias", {padded});
    return linear;
  }

  Norm norm(const std::string& name) {
    const auto* gain = values<float>(name + " gain", {config_.d_model});
    const float* bias =
        config_.norm == Norm::Kind::kLayer ? values<float>(name + " bias", {config_.d_model}) : nullptr;
    return {config_.norm, gain, bias, config_.d_model, config_.epsilon};
  }

  Embedding embedding() {
    const Index d = config_.d_model;
    const Index blocks = config_.vocabulary > 0 ? round_up(config_.vocabulary, kLanes) / kLanes : leading("embedding");
    const Linear table = linear("embedding", blocks * kLanes, d, true);
    const Index max_length = leading("positions");
    const auto* positions = values<float>("positions", {kAny, d});
    return {table, positions, max_length, config_.embedding_norm ? norm("embedding norm") : Norm{}};
  }

  AttentionPart attention(const std::string& name, Index widths) {
    const Index d = config_.d_model;
    return {linear(name + " in", widths * d, d), linear(name + " out", d, d), norm(name + " norm")};
  }

  RecurrentPart recurrent(const std::string& name) {
    const Index d = config_.d_model;
    return {linear(name + " gates", 2 * d, d), norm(name + " norm")};
  }

  FeedForward feed_forward(const std::string& name) {
    FeedForward part{};
    if (config_.gated) part.gate = linear(name + " gate", config_.d_ff, config_.d_model);
    part.inner = linear(name + " inner", config_.d_ff, config_.d_model);
    part.outer = linear(name + " outer", config_.d_model, config_.d_ff);
    part.norm = norm(name + " feed-forward norm");
    return part;
  }

  void finish() const {
    if (next_ != tensors_.size())
      throw std::invalid_argument("weights: expected " + std::to_string(next_) + " tensors, got " +
                                  std::to_string(tensors_.size()));
    for (std::size_t i = 0; i < vectors(); ++i)
      if (tensors_[i].shape[0] != 0) throw std::invalid_argument("weight " + std::to_string(i) + ": too long");
  }

 private:
  template <class T>
  const T* values(const std::string& name, const std::vector<std::int64_t>& shape) {
    constexpr auto type = std::is_same_v<T, float>         ? ort::ElementType::kFloat
                          : std::is_same_v<T, std::int8_t> ? ort::ElementType::kInt8
                                                           : ort::ElementType::kInt32;
    const bool packed = config_.packed_vectors && shape.size() == 1;
    const std::size_t index = !packed ? next_ : type == ort::ElementType::kFloat ? 0 : 1;
    if (index >= tensors_.size())
      throw std::invalid_argument("weights: expected " + name + ", got only " + std::to_string(index) + " tensors");
    Tensor& tensor = tensors_[index];
    if (tensor.type != type || !fits(tensor.shape, shape, packed))
      throw std::invalid_argument("weight " + std::to_string(index) + ": " + name + ": expected " +
                                  describe(type, shape) + ", got " + describe(tensor.type, tensor.shape));
    const T* data = static_cast<const T*>(tensor.data);
    if (packed) tensor.shape[0] -= shape[0], tensor.data = data + shape[0];
    else ++next_;
    return data;
  }

  static bool fits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& expected, bool packed) {
    const auto same = [=](std::int64_t size, std::int64_t wanted) {
      return wanted == kAny || size == wanted || (packed && size > wanted);
    };
    return std::equal(shape.begin(), shape.end(), expected.begin(), expected.end(), same);
  }

  // The number of packed tensors, from each of which vectors are taken.
  std::size_t vectors() const { return !config_.packed_vectors ? 0 : config_.int8 ? 2 : 1; }

  static std::string describe(ort::ElementType type, const std::vector<std::int64_t>& shape) {
    std::string text = type == ort::ElementType::kFloat   ? "float32 ["
                       : type == ort::ElementType::kInt8  ? "int8 ["
                       : type == ort::ElementType::kInt32 ? "int32 ["
                                                          : "another type [";
    for (std::size_t i = 0; i < shape.size(); ++i)
      text += (i == 0 ? "" : ", ") + (shape[i] == kAny ? std::string("any") : std::to_string(shape[i]));
    return text + "]";
  }

  // Returns the length of the first axis of the next tensor.
  Index leading(const std::string& name) const {
    if (next_ >= tensors_.size() || tensors_[next_].shape.empty())
      throw std::invalid_argument("weights: expected " + name);
    return tensors_[next_].shape[0];
  }

  static constexpr std::int64_t kAny = -1;

  const Config& config_;
  std::vector<Tensor> tensors_;
  std::size_t next_ = vectors();
};

}  // namespace dragoman
