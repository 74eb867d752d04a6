#include "model/weights.hpp"

#include <stdexcept>

namespace dragoman {

namespace {

constexpr std::int64_t kAny = -1;

template <class T>
constexpr Element element_of();
template <>
constexpr Element element_of<float>() { return Element::kFloat; }
template <>
constexpr Element element_of<std::int8_t>() { return Element::kInt8; }
template <>
constexpr Element element_of<std::int32_t>() { return Element::kInt32; }

const char* name_of(Element element) {
  switch (element) {
    case Element::kFloat: return "float32";
    case Element::kInt8: return "int8";
    case Element::kInt32: return "int32";
    case Element::kOther: break;
  }
  return "another type";
}

std::string describe(Element element, const std::vector<std::int64_t>& shape) {
  std::string text = std::string(name_of(element)) + " [";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + (shape[i] == kAny ? std::string("any") : std::to_string(shape[i]));
  return text + "]";
}

bool fits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& expected) {
  if (shape.size() != expected.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (expected[i] != kAny && shape[i] != expected[i]) return false;
  return true;
}

}  // namespace

const Tensor& WeightReader::take(const std::string& name, Element element, const std::vector<std::int64_t>& shape) {
  if (next_ == tensors_.size())
    throw std::invalid_argument("weights: expected " + name + ", got only " + std::to_string(next_) + " tensors");
  const Tensor& tensor = tensors_[next_];
  if (tensor.element != element || !fits(tensor.shape, shape))
    throw std::invalid_argument("weight " + std::to_string(next_) + ": " + name + ": expected " +
                                describe(element, shape) + ", got " + describe(tensor.element, tensor.shape));
  ++next_;
  return tensor;
}

template <class T>
const T* WeightReader::values(const std::string& name, const std::vector<std::int64_t>& shape) {
  return static_cast<const T*>(take(name, element_of<T>(), shape).data);
}

Linear WeightReader::linear(const std::string& name, Index outputs, Index inputs) {
  const Index padded = round_up(outputs, kLanes), blocks = padded / kLanes, fours = round_up(inputs, 4) / 4;
  Linear linear{config_.int8, {}, {}, outputs, inputs};
  if (config_.int8) {
    const auto* weight = values<std::int8_t>(name + " weight", {blocks, fours, kLanes, 4});
    const auto* scale = values<float>(name + " scale", {padded});
    const auto* offset = values<std::int32_t>(name + " offset", {padded});
    linear.integers = {weight, scale, offset, values<float>(name + " bias", {padded}), outputs, inputs};
  } else {
    const auto* weight = values<float>(name + " weight", {blocks, inputs, kLanes});
    linear.floats = {weight, values<float>(name + " bias", {padded}), outputs, inputs};
  }
  return linear;
}

Norm WeightReader::norm(const std::string& name) {
  const auto* gain = values<float>(name + " gain", {config_.d_model});
  const float* bias =
      config_.norm == Norm::Kind::kLayer ? values<float>(name + " bias", {config_.d_model}) : nullptr;
  return {config_.norm, gain, bias, config_.d_model, config_.epsilon};
}

// Returns the length of the first axis of the next tensor; 0 if there is none.
Index WeightReader::leading(const std::string& name) const {
  if (next_ == tensors_.size() || tensors_[next_].shape.empty())
    throw std::invalid_argument("weights: expected " + name);
  return tensors_[next_].shape[0];
}

Embedding WeightReader::embedding() {
  const Index d = config_.d_model;
  const Index blocks = config_.vocabulary > 0 ? round_up(config_.vocabulary, kLanes) / kLanes : leading("embedding");
  const Index rows = blocks * kLanes;
  Linear table{config_.int8, {}, {}, rows, d};
  if (config_.int8) {
    const auto* weight = values<std::int8_t>("embedding weight", {blocks, round_up(d, 4) / 4, kLanes, 4});
    table.integers = {weight, values<float>("embedding scale", {rows}), nullptr, nullptr, rows, d};
  } else {
    table.floats = {values<float>("embedding weight", {blocks, d, kLanes}), nullptr, rows, d};
  }
  const Index max_length = leading("positions");
  const auto* positions = values<float>("positions", {kAny, d});
  return {table, positions, rows, max_length, config_.embedding_norm ? norm("embedding norm") : Norm{}};
}

FeedForward WeightReader::feed_forward(const std::string& name) {
  FeedForward part{};
  if (config_.gated) part.gate = linear(name + " gate", config_.d_ff, config_.d_model);
  part.inner = linear(name + " inner", config_.d_ff, config_.d_model);
  part.outer = linear(name + " outer", config_.d_model, config_.d_ff);
  part.norm = norm(name + " feed-forward norm");
  return part;
}

void WeightReader::finish() const {
  if (next_ != tensors_.size())
    throw std::invalid_argument("weights: expected " + std::to_string(next_) + " tensors, got " +
                                std::to_string(tensors_.size()));
}

}  // namespace dragoman
