// What a kernel reads of its node when a session is created. Methods throw exceptions that name the attribute or input.
#pragma once

#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/weights.hpp"
#include "ort/api.hpp"

namespace dragoman {

// Returns type, shape and address of a tensor.
Tensor read_tensor(const ort::Api& api, const ort::Value* value);

enum class Side { kInputs, kOutputs };

class Node {
 public:
  Node(const ort::Api& api, const ort::KernelInfo* info) : api_(api), info_(info) {}

  // Returns the attributes, checked; `vocabulary` only if the operator has one.
  Config config(bool has_vocabulary) const;
  std::size_t count(Side side) const;
  ort::ElementType type(Side side, std::size_t index) const;
  // Returns the constant inputs from `first` to the last.
  std::vector<Tensor> weights(std::size_t first) const;

 private:
  std::int64_t integer(const char* name) const;
  // Returns whether an attribute is set that bundles of earlier versions lack.
  bool flag(const char* name) const;
  float number(const char* name) const;
  std::string text(const char* name, const std::vector<std::string>& expected) const;
  std::vector<AlignmentHead> alignment_heads() const;
  void check_attribute(const char* name, ort::Status* status) const;

  const ort::Api& api_;
  const ort::KernelInfo* info_;
};

}  // namespace dragoman
