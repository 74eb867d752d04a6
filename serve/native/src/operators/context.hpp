// Inputs and outputs of one run. Methods throw std::invalid_argument that names the tensor.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "model/parallel.hpp"
#include "operators/node.hpp"

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
    const ort::Value* value = input_value(index, name);
    const Index elements = bytes_of(value) / static_cast<Index>(sizeof(T));
    if (count >= 0 && elements != count) throw wrong(name, std::to_string(count) + " elements", elements);
    return {static_cast<const T*>(data_of(api_, value)), elements};
  }

  TensorShape input_shape(std::size_t index, const char* name) const {
    return read_tensor(api_, input_value(index, name)).shape;
  }

  template <class T>
  T* output(std::size_t index, const TensorShape& shape) const {
    const ort::Value* value = api_.get(api_.kernel_context_get_output, context_, index, shape.data(), shape.size());
    auto expected = static_cast<Index>(sizeof(T));
    for (const std::int64_t size : shape) expected *= size;
    const Index bytes = value == nullptr ? -1 : bytes_of(value);
    if (bytes != expected)
      throw wrong("output " + std::to_string(index), std::to_string(expected) + " bytes", bytes);
    return static_cast<T*>(data_of(api_, value));
  }

  // Splits work over the threads of the session, as long as this object lives.
  Parallel parallel() {
    if (threads_ <= 1) return {};
    const auto run = [](void* self, Parallel::Task task, std::size_t count, void* user) {
      const Context& context = *static_cast<const Context*>(self);
      context.api_.check(context.api_.kernel_context_parallel_for(context.context_, task, count, count, user));
    };
    return {threads_, run, this};
  }

 private:
  static std::invalid_argument wrong(const std::string& name, const std::string& expected, Index got) {
    return std::invalid_argument(name + ": expected " + expected + ", got " + std::to_string(got));
  }

  const ort::Value* input_value(std::size_t index, const char* name) const {
    const ort::Value* value = api_.get(api_.kernel_context_get_input, context_, index);
    if (value == nullptr) throw std::invalid_argument(std::string(name) + ": missing");
    return value;
  }

  Index bytes_of(const ort::Value* value) const {
    return static_cast<Index>(api_.get(api_.get_tensor_size_in_bytes, value));
  }

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
inline void check_slots(const char* name, Vector<const std::int32_t> slots, Index count) {
  check_values(name, slots, 0, count - 1);
  std::vector<bool> seen(static_cast<std::size_t>(count));
  for (Index i = 0; i < slots.count; ++i) {
    const auto slot = static_cast<std::size_t>(slots.data[i]);
    if (seen[slot])
      throw std::invalid_argument(std::string(name) + ": expected different slots, got " +
                                  std::to_string(slots.data[i]) + " twice");
    seen[slot] = true;
  }
}

}  // namespace dragoman
