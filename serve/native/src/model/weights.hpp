// Weights as views of tensors that are given in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "model/config.hpp"

namespace dragoman {

enum class Element { kFloat, kInt8, kInt32, kOther };

struct Tensor {
  Element element;
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
  Linear table;  // [rows, d_model], without offset and bias
  const float* positions;
  Index rows;       // tokens, rounded up to whole blocks
  Index max_length;  // positions
  Norm norm;         // if `embedding_norm`
};

struct FeedForward {
  Linear gate;  // if the model is gated
  Linear inner;
  Linear outer;
  Norm norm;
};

// Takes weights from the front of a list. Every method throws std::invalid_argument that names a wrong tensor.
class WeightReader {
 public:
  WeightReader(const Config& config, std::vector<Tensor> tensors) : config_(config), tensors_(std::move(tensors)) {}

  Linear linear(const std::string& name, Index outputs, Index inputs);
  Norm norm(const std::string& name);
  Embedding embedding();
  FeedForward feed_forward(const std::string& name);
  void finish() const;

 private:
  const Tensor& take(const std::string& name, Element element, const std::vector<std::int64_t>& shape);
  template <class T>
  const T* values(const std::string& name, const std::vector<std::int64_t>& shape);
  Index leading(const std::string& name) const;

  const Config& config_;
  std::vector<Tensor> tensors_;
  std::size_t next_ = 0;
};

}  // namespace dragoman
