// What a kernel reads of its node when a session is created. Methods throw exceptions that name the attribute or input.
#pragma once

#include <array>
#include <cmath>
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

// The names of a node's inputs before its weights, and of its outputs.
struct NodeNames {
  std::vector<std::string> inputs, outputs;
};

class Node {
 public:
  Node(const ort::Api& api, const ort::KernelInfo* info) : api_(api), info_(info) {}

  // Returns the attributes, checked; `vocabulary` only if the operator has one.
  Config config(bool has_vocabulary) const {
    Config config{};
    config.layers = integer("layers", 0, kMaxLayers);
    config.decoder_layers = integer("decoder_layers", 0, kMaxLayers);
    config.d_model = integer("d_model", 1, kMaxWidth);
    config.d_ff = integer("d_ff", 1, kMaxWidth);
    config.heads = integer("heads", 1, config.d_model);
    if (config.d_model % config.heads != 0)
      throw std::invalid_argument("d_model: expected a multiple of heads = " + std::to_string(config.heads) +
                                  ", got " + std::to_string(config.d_model));
    config.vocabulary = has_vocabulary ? integer("vocabulary", 1, kMaxVocabulary) : 0;
    config.norm = choice("norm", {"layer", "rms"}) == "rms" ? Norm::Kind::kRms : Norm::Kind::kLayer;
    config.pre_norm = integer("pre_norm", 0, 1) != 0;
    config.embedding_norm = is_set("embedding_norm");
    config.packed_vectors = is_set("packed_vectors");
    config.shortlists = is_set("shortlists");
    config.recurrent = is_set("recurrent");
    const std::string activation = choice("activation", {"relu", "gelu", "silu", "swiglu"});
    config.gated = activation == "swiglu";
    config.activation = activation == "relu"   ? Activation::kRelu
                        : activation == "gelu" ? Activation::kGelu
                                               : Activation::kSilu;
    config.int8 = choice("precision", {"fp32", "int8"}) == "int8";
    config.embedding_scale = number("embedding_scale");
    config.epsilon = number("epsilon");
    if (config.epsilon < 0) throw std::invalid_argument("epsilon: expected a finite number of at least 0");
    config.alignment_heads = alignment_heads(config);
    return config;
  }

  std::size_t inputs() const { return api_.get(api_.kernel_info_get_input_count, info_); }

  NodeNames names(std::size_t inputs) const {
    return {names(inputs, api_.kernel_info_get_input_name),
            names(api_.get(api_.kernel_info_get_output_count, info_), api_.kernel_info_get_output_name)};
  }

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
  std::vector<std::string> names(std::size_t count,
                                 ort::Status* (*read)(const ort::KernelInfo*, std::size_t, char*, std::size_t*)) const {
    std::vector<std::string> names;
    for (std::size_t index = 0; index < count; ++index) {
      std::size_t size = 0;
      api_.check(read(info_, index, nullptr, &size));  // the size, with the zero at the end
      std::string name(size, '\0');
      api_.check(read(info_, index, name.data(), &size));
      names.emplace_back(name.c_str());
    }
    return names;
  }

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

  Index integer(const char* name, Index least, Index most) const {
    return checked(name, attribute(name, api_.kernel_info_get_attribute_int64), least, most);
  }

  static Index checked(const std::string& name, std::int64_t value, Index least, Index most) {
    if (value >= least && value <= most) return value;
    throw std::invalid_argument(name + ": expected " + std::to_string(least) + " to " + std::to_string(most) +
                                ", got " + std::to_string(value));
  }

  float number(const char* name) const {
    const float value = attribute(name, api_.kernel_info_get_attribute_float);
    if (!std::isfinite(value)) throw std::invalid_argument(std::string(name) + ": expected a finite number");
    return value;
  }

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

  std::vector<AlignmentHead> alignment_heads(const Config& config) const {
    constexpr const char* kName = "alignment_heads";
    std::size_t size = 0;
    if (!exists(api_.kernel_info_get_attribute_array_int64(info_, kName, nullptr, &size)) || size == 0) return {};
    std::vector<std::int64_t> numbers(size);
    check_attribute(kName, api_.kernel_info_get_attribute_array_int64(info_, kName, numbers.data(), &size));
    if (size % 2 != 0) throw std::invalid_argument("alignment_heads: expected pairs of layer and head");
    std::vector<AlignmentHead> heads;
    for (std::size_t i = 0; i < size; i += 2)
      heads.push_back({checked("alignment_heads: layer", numbers[i], 0, config.decoder_layers - 1),
                       checked("alignment_heads: head", numbers[i + 1], 0, config.heads - 1)});
    return heads;
  }

  const ort::Api& api_;
  const ort::KernelInfo* info_;
};

}  // namespace dragoman
