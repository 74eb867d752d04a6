// Inputs and outputs of one run. Methods throw std::invalid_argument that names the tensor.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "model/parallel.hpp"
#include "ort/api.hpp"

namespace dragoman {

using TensorShape = std::vector<std::int64_t>;

template <class T>
struct Vector {
  T* data;
  Index count;
};

class Context {
 public:
  Context(const ort::Api& api, ort::KernelContext* context, Index threads)
      : api_(api), context_(context), threads_(threads) {}

  // Returns the elements of an input, whose type is known; `count` is checked if it is at least 0.
  template <class T>
  Vector<const T> input(std::size_t index, const char* name, Index count = -1) const {
    const Vector<void> bytes = memory(input_value(index, name));
    const Index elements = bytes.count / static_cast<Index>(sizeof(T));
    if (count >= 0 && elements != count)
      throw std::invalid_argument(std::string(name) + ": expected " + std::to_string(count) + " elements, got " +
                                  std::to_string(elements));
    return {static_cast<const T*>(bytes.data), elements};
  }
  TensorShape input_shape(std::size_t index, const char* name) const;

  template <class T>
  T* output(std::size_t index, const TensorShape& shape) const {
    return static_cast<T*>(output_memory(index, shape, sizeof(T)));
  }

  // Splits work over the threads of the session, as long as this object lives.
  Parallel parallel();

 private:
  const ort::Value* input_value(std::size_t index, const char* name) const;
  void* output_memory(std::size_t index, const TensorShape& shape, std::size_t element_bytes) const;
  Vector<void> memory(const ort::Value* value) const;

  const ort::Api& api_;
  ort::KernelContext* context_;
  Index threads_;
};

// Throws unless all values are in low, ..., high.
template <class T>
void check_values(const char* name, Vector<const T> values, Index low, Index high) {
  for (Index i = 0; i < values.count; ++i)
    if (values.data[i] < low || values.data[i] > high)
      throw std::invalid_argument(std::string(name) + "[" + std::to_string(i) + "]: expected " + std::to_string(low) +
                                  " to " + std::to_string(high) + ", got " + std::to_string(values.data[i]));
}

// Throws unless all slots are in their range and different.
void check_slots(const char* name, Vector<const std::int32_t> slots, Index count);

}  // namespace dragoman
