// What a kernel reads of its node when a session is created. Methods throw exceptions that name the attribute or input.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/weights.hpp"
#include "ort/api.hpp"

namespace dragoman {

// Returns type and shape of a tensor.
inline Tensor read_tensor(const ort::Api& api, const ort::Value* value) {
  const auto info = api.own(api.get_tensor_type_and_shape, value);
  Tensor tensor{api.get(api.get_tensor_element_type, info.get()), {}, nullptr};
  tensor.shape.resize(api.get(api.get_dimensions_count, info.get()));
  api.check(api.get_dimensions(info.get(), tensor.shape.data(), tensor.shape.size()));
  return tensor;
}

inline void* data_of(const ort::Api& api, const ort::Value* value) {
  return api.get(api.get_tensor_mutable_data, const_cast<ort::Value*>(value));
}

class Node {
 public:
  Node(const ort::Api& api, const ort::KernelInfo* info) : api_(api), info_(info) {}

  // Returns the attributes, checked; `vocabulary` only if the operator has one.
  Config config(bool has_vocabulary) const {
    Config config{};
    config.layers = integer("layers");
    config.decoder_layers = integer("decoder_layers");
    config.heads = integer("heads");
    config.d_model = integer("d_model");
    config.d_ff = integer("d_ff");
    config.vocabulary = has_vocabulary ? integer("vocabulary") : 0;
    config.norm = choice("norm", {"layer", "rms"}) == "rms" ? Norm::Kind::kRms : Norm::Kind::kLayer;
    config.pre_norm = integer("pre_norm") != 0;
    config.embedding_norm = is_set("embedding_norm");
    const std::string activation = choice("activation", {"relu", "gelu", "silu", "swiglu"});
    config.gated = activation == "swiglu";
    config.activation = activation == "relu"   ? Activation::kRelu
                        : activation == "gelu" ? Activation::kGelu
                                               : Activation::kSilu;
    config.int8 = choice("precision", {"fp32", "int8"}) == "int8";
    config.embedding_scale = attribute("embedding_scale", api_.kernel_info_get_attribute_float);
    config.epsilon = attribute("epsilon", api_.kernel_info_get_attribute_float);
    config.alignment_heads = alignment_heads();
    check(config);
    if (has_vocabulary && config.vocabulary == 0) throw std::invalid_argument("vocabulary: expected at least 1");
    return config;
  }

  std::size_t inputs() const { return api_.get(api_.kernel_info_get_input_count, info_); }

  ort::ElementType input_type(std::size_t index) const {
    const auto type = api_.own(api_.kernel_info_get_input_type_info, info_, index);
    const ort::TensorInfo* info = api_.get(api_.cast_type_info_to_tensor_info, type.get());
    return info == nullptr ? ort::ElementType::kUndefined : api_.get(api_.get_tensor_element_type, info);
  }

  // Returns the constant inputs from `first` to the last.
  std::vector<Tensor> weights(std::size_t first) const {
    std::vector<Tensor> tensors;
    for (std::size_t index = first, end = inputs(); index < end; ++index) {
      int constant = 0;
      const ort::Value* value = api_.get(api_.kernel_info_get_constant_input, info_, index, &constant);
      if (constant == 0 || value == nullptr)
        throw std::invalid_argument("weight " + std::to_string(index - first) + ": expected a constant");
      tensors.push_back(read_tensor(api_, value));
      tensors.back().data = data_of(api_, value);
    }
    return tensors;
  }

 private:
  template <class T>
  T attribute(const char* name, ort::Status* (*read)(const ort::KernelInfo*, const char*, T*)) const {
    T value{};
    check_attribute(name, read(info_, name, &value));
    return value;
  }

  void check_attribute(const char* name, ort::Status* status) const {
    try {
      api_.check(status);
    } catch (const std::runtime_error& error) {
      throw std::invalid_argument(std::string(name) + ": " + error.what());
    }
  }

  std::int64_t integer(const char* name) const { return attribute(name, api_.kernel_info_get_attribute_int64); }

  // Returns whether an attribute is set that bundles of earlier versions lack.
  bool is_set(const char* name) const {
    std::int64_t value = 0;
    return exists(api_.kernel_info_get_attribute_int64(info_, name, &value)) && value != 0;
  }

  bool exists(ort::Status* status) const {
    if (status != nullptr) api_.release_status(status);
    return status == nullptr;
  }

  std::string choice(const char* name, const std::vector<std::string>& expected) const {
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

  std::vector<AlignmentHead> alignment_heads() const {
    constexpr const char* kName = "alignment_heads";
    std::size_t size = 0;
    if (!exists(api_.kernel_info_get_attribute_array_int64(info_, kName, nullptr, &size)) || size == 0) return {};
    std::vector<std::int64_t> numbers(size);
    check_attribute(kName, api_.kernel_info_get_attribute_array_int64(info_, kName, numbers.data(), &size));
    if (size % 2 != 0) throw std::invalid_argument("alignment_heads: expected pairs of layer and head");
    std::vector<AlignmentHead> heads;
    for (std::size_t i = 0; i < size; i += 2) heads.push_back({numbers[i], numbers[i + 1]});
    return heads;
  }

  const ort::Api& api_;
  const ort::KernelInfo* info_;
};

}  // namespace dragoman
