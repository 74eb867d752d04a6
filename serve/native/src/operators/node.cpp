#include "operators/node.hpp"

#include <array>

namespace dragoman {

Tensor read_tensor(const ort::Api& api, const ort::Value* value) {
  ort::TensorInfo* info = nullptr;
  api.check(api.get_tensor_type_and_shape(value, &info));
  const ort::OwnedTensorInfo owned(info, {&api});
  ort::ElementType type = ort::ElementType::kUndefined;
  api.check(api.get_tensor_element_type(info, &type));
  std::size_t rank = 0;
  api.check(api.get_dimensions_count(info, &rank));
  Tensor tensor{Element::kOther, std::vector<std::int64_t>(rank), nullptr};
  api.check(api.get_dimensions(info, tensor.shape.data(), rank));
  if (type == ort::ElementType::kFloat) tensor.element = Element::kFloat;
  if (type == ort::ElementType::kInt8) tensor.element = Element::kInt8;
  if (type == ort::ElementType::kInt32) tensor.element = Element::kInt32;
  void* data = nullptr;
  if (tensor.element != Element::kOther) api.check(api.get_tensor_mutable_data(const_cast<ort::Value*>(value), &data));
  tensor.data = data;
  return tensor;
}

void Node::check_attribute(const char* name, ort::Status* status) const {
  try {
    api_.check(status);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(std::string(name) + ": " + error.what());
  }
}

std::int64_t Node::integer(const char* name) const {
  std::int64_t value = 0;
  check_attribute(name, api_.kernel_info_get_attribute_int64(info_, name, &value));
  return value;
}

bool Node::flag(const char* name) const {
  std::int64_t value = 0;
  ort::Status* absent = api_.kernel_info_get_attribute_int64(info_, name, &value);
  if (absent != nullptr) api_.release_status(absent);
  return value != 0;
}

float Node::number(const char* name) const {
  float value = 0;
  check_attribute(name, api_.kernel_info_get_attribute_float(info_, name, &value));
  return value;
}

std::string Node::text(const char* name, const std::vector<std::string>& expected) const {
  std::array<char, 64> value{};
  std::size_t size = value.size();
  check_attribute(name, api_.kernel_info_get_attribute_string(info_, name, value.data(), &size));
  std::string list;
  for (const std::string& word : expected) {
    if (word == value.data()) return word;
    list += (list.empty() ? "" : ", ") + word;
  }
  throw std::invalid_argument(std::string(name) + ": expected one of " + list + ", got " + value.data());
}

std::vector<AlignmentHead> Node::alignment_heads() const {
  constexpr const char* kAttribute = "alignment_heads";
  std::size_t size = 0;
  if (ort::Status* absent = api_.kernel_info_get_attribute_array_int64(info_, kAttribute, nullptr, &size)) {
    api_.release_status(absent);
    return {};
  }
  std::vector<std::int64_t> numbers(size);
  if (size > 0)
    check_attribute(kAttribute, api_.kernel_info_get_attribute_array_int64(info_, kAttribute, numbers.data(), &size));
  if (size % 2 != 0) throw std::invalid_argument("alignment_heads: expected pairs of layer and head");
  std::vector<AlignmentHead> heads;
  for (std::size_t i = 0; i < size; i += 2) heads.push_back({numbers[i], numbers[i + 1]});
  return heads;
}

Config Node::config(bool has_vocabulary) const {
  Config config{};
  config.layers = integer("layers");
  config.decoder_layers = integer("decoder_layers");
  config.heads = integer("heads");
  config.d_model = integer("d_model");
  config.d_ff = integer("d_ff");
  config.vocabulary = has_vocabulary ? integer("vocabulary") : 0;
  config.norm = text("norm", {"layer", "rms"}) == "rms" ? Norm::Kind::kRms : Norm::Kind::kLayer;
  config.pre_norm = integer("pre_norm") != 0;
  config.embedding_norm = flag("embedding_norm");
  const std::string activation = text("activation", {"relu", "gelu", "silu", "swiglu"});
  config.gated = activation == "swiglu";
  config.activation = activation == "relu"   ? Activation::kRelu
                      : activation == "gelu" ? Activation::kGelu
                                             : Activation::kSilu;
  config.int8 = text("precision", {"fp32", "int8"}) == "int8";
  config.embedding_scale = number("embedding_scale");
  config.epsilon = number("epsilon");
  config.alignment_heads = alignment_heads();
  check(config);
  if (has_vocabulary && config.vocabulary == 0) throw std::invalid_argument("vocabulary: expected at least 1");
  return config;
}

std::size_t Node::count(Side side) const {
  std::size_t count = 0;
  const auto read = side == Side::kInputs ? api_.kernel_info_get_input_count : api_.kernel_info_get_output_count;
  api_.check(read(info_, &count));
  return count;
}

ort::ElementType Node::type(Side side, std::size_t index) const {
  ort::TypeInfo* type = nullptr;
  const auto read = side == Side::kInputs ? api_.kernel_info_get_input_type_info : api_.kernel_info_get_output_type_info;
  api_.check(read(info_, index, &type));
  const ort::OwnedTypeInfo owned(type, {&api_});
  const ort::TensorInfo* info = nullptr;
  api_.check(api_.cast_type_info_to_tensor_info(type, &info));
  ort::ElementType element = ort::ElementType::kUndefined;
  if (info != nullptr) api_.check(api_.get_tensor_element_type(info, &element));
  return element;
}

std::vector<Tensor> Node::weights(std::size_t first) const {
  std::vector<Tensor> tensors;
  for (std::size_t index = first, end = count(Side::kInputs); index < end; ++index) {
    int constant = 0;
    const ort::Value* value = nullptr;
    api_.check(api_.kernel_info_get_constant_input(info_, index, &constant, &value));
    if (constant == 0 || value == nullptr)
      throw std::invalid_argument("weight " + std::to_string(index - first) + ": expected a constant");
    tensors.push_back(read_tensor(api_, value));
  }
  return tensors;
}

}  // namespace dragoman
